//! What this machine has to have before a sandbox starts: said once, completely, with the packages that bring it.
//!
//! It looks for files and runs nothing; whether user namespaces are allowed shows when the first pod starts.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Where Debian, and the images built on it, keep each major version's programs.
const PROGRAMS: &str = "/usr/lib/postgresql";
/// Where they keep each major version's extensions.
const SHARED: &str = "/usr/share/postgresql";

/// The newest PostgreSQL of this machine that has PostGIS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    pub postgresql_major: u32,
    /// PostGIS's major and minor version, as in `3.3`.
    pub postgis: String,
}

impl Installed {
    /// The name of the stock image with these versions; the sandbox's node maps it to the programs of this machine.
    pub fn image(&self) -> String {
        format!("postgis/postgis:{}-{}", self.postgresql_major, self.postgis)
    }
}

/// Looks at this machine.
pub fn check() -> Result<Installed> {
    let search: Vec<PathBuf> = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect())
        .unwrap_or_default();
    check_in(Path::new("/"), &search)
}

fn check_in(root: &Path, search: &[PathBuf]) -> Result<Installed> {
    let mut missing = Vec::new();
    if !search
        .iter()
        .any(|directory| directory.join("bwrap").is_file())
    {
        missing.push("bubblewrap, which isolates pods (package bubblewrap)".to_owned());
    }
    let majors = postgresql_majors(root);
    let with_postgis = majors
        .iter()
        .rev()
        .find_map(|major| Some((*major, postgis_version(root, *major)?)));
    match (with_postgis, majors.last()) {
        (Some((postgresql_major, postgis)), _) if missing.is_empty() => return Ok(Installed { postgresql_major, postgis }),
        (Some(_), _) => {}
        (None, Some(major)) => missing.push(format!("PostGIS for PostgreSQL {major} (package postgresql-{major}-postgis-3)")),
        (None, None) => missing.push(format!("PostgreSQL in {PROGRAMS}/MAJOR/bin with PostGIS (packages postgresql and postgresql-postgis)")),
    }
    bail!(
        "this machine lacks {}. `make run` installs what is missing on Debian and its relatives",
        missing.join("; and ")
    );
}

/// Major versions with a server program, ascending.
fn postgresql_majors(root: &Path) -> Vec<u32> {
    let directory = root.join(PROGRAMS.trim_start_matches('/'));
    let mut majors: Vec<u32> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().join("bin/initdb").is_file())
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    majors.sort_unstable();
    majors
}

/// `3.3` from the `default_version = '3.3.2'` of the extension's control file.
fn postgis_version(root: &Path, major: u32) -> Option<String> {
    let path = root
        .join(SHARED.trim_start_matches('/'))
        .join(format!("{major}/extension/postgis.control"));
    let text = std::fs::read_to_string(path).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("default_version"))?;
    let version = line
        .trim_start_matches([' ', '='])
        .trim()
        .trim_matches('\'');
    let mut parts = version.split('.');
    let (first, second) = (parts.next()?, parts.next()?);
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    (is_number(first) && is_number(second)).then(|| format!("{first}.{second}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn with(self, path: &str, content: &str) -> Self {
            let path = self.0.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
            self
        }

        fn postgresql(self, major: u32) -> Self {
            self.with(&format!("usr/lib/postgresql/{major}/bin/initdb"), "")
        }

        fn postgis(self, major: u32, version: &str) -> Self {
            self.with(
                &format!("usr/share/postgresql/{major}/extension/postgis.control"),
                &format!("# x\ndefault_version = '{version}'\n"),
            )
        }

        fn check(&self) -> Result<Installed> {
            check_in(self.0.path(), &[self.0.path().join("usr/bin")])
        }
    }

    #[test]
    fn the_newest_postgresql_with_postgis_is_taken() {
        let machine = Machine::new()
            .with("usr/bin/bwrap", "")
            .postgresql(14)
            .postgis(14, "3.2.1")
            .postgresql(15)
            .postgis(15, "3.3.2")
            .postgresql(17);
        assert_eq!(machine.check().unwrap().image(), "postgis/postgis:15-3.3");
    }

    #[test]
    fn everything_missing_is_said_at_once() {
        let error = Machine::new().check().unwrap_err().to_string();
        assert!(error.contains("package bubblewrap"), "{error}");
        assert!(
            error.contains("packages postgresql and postgresql-postgis"),
            "{error}"
        );
    }

    #[test]
    fn a_postgresql_without_postgis_names_the_package() {
        let error = Machine::new()
            .with("usr/bin/bwrap", "")
            .postgresql(16)
            .check()
            .unwrap_err()
            .to_string();
        assert!(error.contains("postgresql-16-postgis-3"), "{error}");
        assert!(!error.contains("bubblewrap"), "{error}");
    }
}
