//! What needs logic but is not the product: generated files and the rules that a compiler does not hold us to.
//!
//! `cargo xtask generate` writes; `cargo xtask tidy` and the tests beside this crate check. Nothing here is linked into the product.

pub mod generate;
pub mod source;
pub mod tidy;

use std::path::PathBuf;

/// The top of the checkout this program was built from.
#[must_use]
pub fn repository() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest
        .parent()
        .map_or_else(|| manifest.clone(), PathBuf::from)
}
