# The door for people. What needs logic is in scripts/ or `cargo xtask`; CI runs exactly `make test`.
.DEFAULT_GOAL := help
.PHONY: help run build test check lint fmt bench soak clean setup generate

# A Rust toolchain that scripts/setup installed a moment ago is not on the caller's PATH yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
GEODB := $(TARGET)/release/geodb
DATA := .geodb

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## install what is missing, build, and run a three-instance PostGIS database; Ctrl-C stops it, data stays in .geodb
	@scripts/setup run
	@$(MAKE) --no-print-directory build
	@exec $(GEODB) sandbox --data $(DATA) -f examples/cities.yaml

build: ## target/release/geodb
	@cargo build --release --locked --package geodb

test: ## install what is missing, then run everything that needs no cluster
	@scripts/setup test
	@$(MAKE) --no-print-directory lint
	@scripts/test

lint: ## formatting, clippy, licences and bans
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets --locked --quiet -- --deny warnings
	@scripts/cargo-deny

fmt: ## format the code
	@cargo fmt --all

generate: ## write the generated files again (CRDs)
	@cargo xtask generate

bench: ## the budgets: time to ready as a ratio, size, memory
	@scripts/setup run
	@$(MAKE) --no-print-directory build
	@GEODB=$(abspath $(GEODB)) scripts/bench

soak: ## ten minutes at rest: not one API write
	@scripts/setup test
	@GEODB_REST_SECONDS=600 scripts/test --package geodb --test stories rest

clean: ## remove build products and the sandbox's data
	@cargo clean
	@rm -rf $(DATA)
