//! From an image reference to programs on this machine.
//!
//! Nothing is pulled. An image that is not mapped is an error that names what is, and a pod that asks for it waits as it would for
//! a registry that does not have it.

use std::path::{Path, PathBuf};

/// Where distributions of Debian's family keep PostgreSQL's programs, one directory per major version.
const POSTGRESQL_DIRECTORY: &str = "/usr/lib/postgresql";
/// What every image's `PATH` ends with.
const BASE_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The user of the operator's image: it needs no rights, so it has none.
const NONROOT: u32 = 65532;
/// Where the operator's image keeps its one program.
pub const GEODB_TARGET: &str = "/geodb";

/// What an image gives a container besides the host's userland.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// What it is, for events and for `imageID`.
    pub id: String,
    pub entrypoint: Vec<String>,
    /// Arguments used when the container names neither command nor args.
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// Host files bound read-only: (on the host, in the container).
    pub binds: Vec<(PathBuf, PathBuf)>,
    /// The user when the pod names none.
    pub user: u32,
}

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ImageError {
    #[error("image {image:?} is not mapped to programs of this machine; mapped are {mapped}")]
    NotMapped { image: String, mapped: String },
    #[error(
        "image {image:?} needs PostgreSQL {major}, which is not installed; installed: {installed}; install the package postgresql-{major}"
    )]
    NotInstalled {
        image: String,
        major: String,
        installed: String,
    },
    #[error(
        "image {image:?} does not say which major version of PostgreSQL it is; use a tag that starts with one, such as {suggestion:?}"
    )]
    NoMajor { image: String, suggestion: String },
    #[error("{image:?} is not an image reference (registry/repository:tag)")]
    Invalid { image: String },
}

/// The map. It looks at the disk once, when it is made, so that the same image means the same for the life of the sandbox.
#[derive(Clone, Debug)]
pub struct ImageMap {
    program: PathBuf,
    postgresql: Vec<PostgresqlVersion>,
}

#[derive(Clone, Debug)]
struct PostgresqlVersion {
    major: String,
    programs: PathBuf,
}

impl ImageMap {
    /// The machine's map; `program` is the geodb binary that `geodb:*` stands for.
    pub fn of_this_machine(program: PathBuf) -> Self {
        Self::with_postgresql_in(program, Path::new(POSTGRESQL_DIRECTORY))
    }

    fn with_postgresql_in(program: PathBuf, directory: &Path) -> Self {
        let mut postgresql: Vec<PostgresqlVersion> = std::fs::read_dir(directory)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let major = entry.file_name().into_string().ok()?;
                let programs = entry.path().join("bin");
                programs
                    .join("postgres")
                    .is_file()
                    .then_some(PostgresqlVersion { major, programs })
            })
            .collect();
        postgresql.sort_by_key(|version| version.major.parse::<u32>().unwrap_or(0));
        Self {
            program,
            postgresql,
        }
    }

    /// What `reference` stands for here.
    pub fn resolve(&self, reference: &str) -> Result<Image, ImageError> {
        let (repository, tag) = split(reference).ok_or_else(|| ImageError::Invalid {
            image: reference.to_owned(),
        })?;
        match repository {
            "geodb" => Ok(self.geodb()),
            "postgres" | "postgis/postgis" => self.postgresql(reference, tag),
            "busybox" => Ok(userland("busybox", "sh")),
            "debian" => Ok(userland("debian", "bash")),
            _ => Err(ImageError::NotMapped {
                image: reference.to_owned(),
                mapped: self.mapped(),
            }),
        }
    }

    fn geodb(&self) -> Image {
        Image {
            id: format!("sandbox://{}", self.program.display()),
            entrypoint: vec![GEODB_TARGET.to_owned()],
            arguments: Vec::new(),
            environment: vec![("PATH".to_owned(), BASE_PATH.to_owned())],
            binds: vec![(self.program.clone(), PathBuf::from(GEODB_TARGET))],
            user: NONROOT,
        }
    }

    fn postgresql(&self, reference: &str, tag: Option<&str>) -> Result<Image, ImageError> {
        let digits: String = tag
            .unwrap_or_default()
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        let newest = self
            .postgresql
            .last()
            .map_or("17", |version| version.major.as_str());
        if digits.is_empty() {
            return Err(ImageError::NoMajor {
                image: reference.to_owned(),
                suggestion: newest.to_owned(),
            });
        }
        let Some(version) = self
            .postgresql
            .iter()
            .find(|version| version.major == digits)
        else {
            return Err(ImageError::NotInstalled {
                image: reference.to_owned(),
                major: digits,
                installed: self.installed(),
            });
        };
        Ok(Image {
            id: format!("sandbox://{}", version.programs.display()),
            // The stock images' entry point is a script of theirs; here a container says what it runs.
            entrypoint: Vec::new(),
            arguments: Vec::new(),
            environment: vec![
                (
                    "PATH".to_owned(),
                    format!("{}:{BASE_PATH}", version.programs.display()),
                ),
                ("LANG".to_owned(), "C.UTF-8".to_owned()),
                ("PG_MAJOR".to_owned(), version.major.clone()),
            ],
            binds: Vec::new(),
            user: 0,
        })
    }

    fn installed(&self) -> String {
        if self.postgresql.is_empty() {
            return "none".to_owned();
        }
        self.postgresql
            .iter()
            .map(|version| version.major.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn mapped(&self) -> String {
        let mut mapped = vec!["geodb:*".to_owned()];
        for version in &self.postgresql {
            mapped.push(format!("postgis/postgis:{}-*", version.major));
            mapped.push(format!("postgres:{}*", version.major));
        }
        mapped.extend(["busybox:*".to_owned(), "debian:*".to_owned()]);
        mapped.join(", ")
    }
}

fn userland(name: &str, shell: &str) -> Image {
    Image {
        id: format!("sandbox://usr/{name}"),
        entrypoint: Vec::new(),
        arguments: vec![shell.to_owned()],
        environment: vec![("PATH".to_owned(), BASE_PATH.to_owned())],
        binds: Vec::new(),
        user: 0,
    }
}

/// Repository without Docker Hub's implied parts, and the tag. A digest is accepted and says nothing here.
fn split(reference: &str) -> Option<(&str, Option<&str>)> {
    let name = reference.split('@').next().unwrap_or(reference);
    let (repository, tag) = match name.rsplit_once(':') {
        // A colon before a slash is a registry's port.
        Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
        _ => (name, None),
    };
    let repository = repository.strip_prefix("docker.io/").unwrap_or(repository);
    let repository = repository.strip_prefix("library/").unwrap_or(repository);
    let sound =
        !repository.is_empty() && !reference.contains(char::is_whitespace) && tag != Some("");
    sound.then_some((repository, tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> (tempfile::TempDir, ImageMap) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for major in ["9", "15"] {
            let programs = directory.path().join(major).join("bin");
            std::fs::create_dir_all(&programs).expect("made");
            std::fs::write(programs.join("postgres"), "").expect("written");
        }
        std::fs::create_dir_all(directory.path().join("16")).expect("made");
        let map = ImageMap::with_postgresql_in(PathBuf::from("/opt/program"), directory.path());
        (directory, map)
    }

    #[test]
    fn references_of_the_same_image_mean_the_same() {
        let (_directory, map) = map();
        let plain = map.resolve("postgres:15.4").expect("mapped");
        for reference in [
            "docker.io/library/postgres:15",
            "postgres:15-bookworm",
            "postgis/postgis:15-3.3",
            "postgres:15@sha256:00ff",
        ] {
            assert_eq!(map.resolve(reference).as_ref(), Ok(&plain), "{reference}");
        }
        assert!(
            plain.environment[0].1.contains("/15/bin:/usr/local/sbin"),
            "{plain:?}"
        );
    }

    #[test]
    fn the_operators_image_is_the_running_program() {
        let (_directory, map) = map();
        let image = map.resolve("geodb:dev").expect("mapped");
        assert_eq!(
            image.binds,
            [(PathBuf::from("/opt/program"), PathBuf::from("/geodb"))]
        );
        assert_eq!(image.entrypoint, ["/geodb"]);
        assert_ne!(image.user, 0);
    }

    #[test]
    fn what_is_not_here_says_what_is() {
        let (_directory, map) = map();
        let not_mapped = map
            .resolve("registry.example:5000/nginx")
            .expect_err("not mapped")
            .to_string();
        assert!(
            not_mapped.contains("geodb:*, postgis/postgis:9-*") && not_mapped.contains("nginx"),
            "{not_mapped}"
        );
        let not_installed = map
            .resolve("postgres:16")
            .expect_err("no programs")
            .to_string();
        assert!(
            not_installed.contains("installed: 9, 15") && not_installed.contains("postgresql-16"),
            "{not_installed}"
        );
        assert!(matches!(
            map.resolve("postgres:latest"),
            Err(ImageError::NoMajor { .. })
        ));
        assert!(matches!(
            map.resolve("postgres"),
            Err(ImageError::NoMajor { .. })
        ));
        for bad in ["", "a b", "x:"] {
            assert!(
                matches!(map.resolve(bad), Err(ImageError::Invalid { .. })),
                "{bad}"
            );
        }
    }
}
