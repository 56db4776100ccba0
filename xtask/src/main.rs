//! The command line of xtask; see the library for what each command does.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "What needs logic but is not the product"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write every generated file: the CRDs under deploy/crds.
    Generate,
    /// Check the rules of style that the compiler does not know.
    Tidy,
}

fn main() -> Result<ExitCode> {
    let repository = xtask::repository();
    match Arguments::parse().command {
        Command::Generate => {
            for file in xtask::generate::files()? {
                let path = repository.join(&file.path);
                let parent = path.parent().context("a generated file has a directory")?;
                std::fs::create_dir_all(parent)
                    .and_then(|()| std::fs::write(&path, &file.content))
                    .with_context(|| format!("failed to write {}", path.display()))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Tidy => {
            let findings = xtask::tidy::check(&repository)?;
            for finding in &findings {
                eprintln!("{finding}");
            }
            Ok(if findings.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
    }
}
