//! What the pod hands to the agent, read once and checked: variables into values, paths into one place.

use std::net::IpAddr;
use std::path::PathBuf;

use geodb_ha::environment as words;
use geodb_ha::instance::Upstream;

/// Bytes of a name inside PostgreSQL; longer ones would be cut.
const IDENTIFIER_BYTES_MAX: usize = 63;

/// Everything an agent is told.
#[derive(Debug, Clone)]
pub struct Environment {
    pub database: String,
    pub instance: String,
    pub namespace: String,
    pub pod_ip: IpAddr,
    pub port: u16,
    pub health_port: u16,
    pub app_database: String,
    pub extensions: Vec<String>,
    pub(crate) paths: Paths,
}

/// Where things are in the pod.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    pub volume: PathBuf,
    pub data: PathBuf,
    pub state: PathBuf,
    pub run: PathBuf,
    pub server_secret: PathBuf,
    pub replication_secret: PathBuf,
    pub app_secret: PathBuf,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            volume: words::VOLUME_PATH.into(),
            data: words::DATA_PATH.into(),
            state: words::STATE_PATH.into(),
            run: words::RUN_PATH.into(),
            server_secret: words::SERVER_SECRET_PATH.into(),
            replication_secret: words::REPLICATION_SECRET_PATH.into(),
            app_secret: words::APP_SECRET_PATH.into(),
        }
    }
}

/// Why the pod's environment cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    #[error("{0} is not set: the agent runs in a pod made by the operator, which sets it")]
    Missing(&'static str),
    #[error("{name} is {value:?}, which is not {expected}")]
    Invalid {
        name: &'static str,
        value: String,
        expected: &'static str,
    },
}

impl Environment {
    /// Reads the variables of this process.
    pub fn from_process() -> Result<Self, EnvironmentError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// Reads variables from `get`, which returns `None` for one that is not set.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        let required = |name: &'static str| {
            get(name)
                .filter(|value| !value.is_empty())
                .ok_or(EnvironmentError::Missing(name))
        };
        let object = |name| {
            required(name)
                .and_then(|value| checked(name, value, "a Kubernetes object name", is_object_name))
        };
        let port = |name, default| match get(name) {
            None => Ok(default),
            Some(value) => match value.parse() {
                Ok(port) if port != 0 => Ok(port),
                _ => Err(EnvironmentError::Invalid {
                    name,
                    value,
                    expected: "a port",
                }),
            },
        };
        let identifier = |name, value| {
            checked(
                name,
                value,
                "a name PostgreSQL takes (1 to 63 bytes, no control characters)",
                is_identifier,
            )
        };
        let extensions = get(words::EXTENSIONS).unwrap_or_default();
        let listed = extensions
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        Ok(Self {
            database: object(words::DATABASE)?,
            instance: object(words::INSTANCE)?,
            namespace: object(words::NAMESPACE)?,
            pod_ip: parse_address(required(words::POD_IP)?)?,
            port: port(words::PORT, words::DEFAULT_PORT)?,
            health_port: port(words::HEALTH_PORT, words::DEFAULT_HEALTH_PORT)?,
            app_database: identifier(words::APP_DATABASE, required(words::APP_DATABASE)?)?,
            extensions: listed
                .map(|name| identifier(words::EXTENSIONS, name.to_owned()))
                .collect::<Result<_, _>>()?,
            paths: Paths::default(),
        })
    }

    /// Where this instance can be reached.
    pub(crate) fn here(&self) -> Upstream {
        Upstream {
            address: self.pod_ip.to_string(),
            port: self.port,
        }
    }
}

fn parse_address(value: String) -> Result<IpAddr, EnvironmentError> {
    match value.parse::<IpAddr>() {
        Ok(address) if !address.is_unspecified() => Ok(address),
        _ => Err(EnvironmentError::Invalid {
            name: words::POD_IP,
            value,
            expected: "the address of a pod",
        }),
    }
}

fn checked(
    name: &'static str,
    value: String,
    expected: &'static str,
    check: fn(&str) -> bool,
) -> Result<String, EnvironmentError> {
    if check(&value) {
        Ok(value)
    } else {
        Err(EnvironmentError::Invalid {
            name,
            value,
            expected,
        })
    }
}

fn is_object_name(value: &str) -> bool {
    let allowed = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.'
    };
    value.len() <= 253 && value.bytes().all(allowed)
}

/// What PostgreSQL keeps whole as a name.
pub(crate) fn is_identifier(value: &str) -> bool {
    !value.is_empty() && value.len() <= IDENTIFIER_BYTES_MAX && !value.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(change: &str, to: Option<&str>) -> Result<Environment, EnvironmentError> {
        Environment::from_variables(|name| {
            if name == change {
                return to.map(str::to_owned);
            }
            let value = match name {
                words::DATABASE => "lake",
                words::INSTANCE => "lake-2",
                words::NAMESPACE => "maps",
                words::POD_IP => "127.9.0.4",
                words::APP_DATABASE => "Shore Lines",
                words::EXTENSIONS => "postgis, postgis_topology,",
                _ => return None,
            };
            Some(value.to_owned())
        })
    }

    #[test]
    fn a_pod_of_the_operator_is_understood() {
        let environment = variables("", None).unwrap();
        assert_eq!((environment.port, environment.health_port), (5432, 8008));
        assert_eq!(environment.extensions, ["postgis", "postgis_topology"]);
        assert_eq!(environment.here().address, "127.9.0.4");
    }

    #[test]
    fn a_bad_variable_is_named_with_what_was_expected() {
        let long = "x".repeat(64);
        let cases = [
            (words::DATABASE, None),
            (words::INSTANCE, Some("")),
            (words::INSTANCE, Some("Lake/2")),
            (words::NAMESPACE, Some("a b")),
            (words::POD_IP, Some("lake.example")),
            (words::POD_IP, Some("0.0.0.0")),
            (words::PORT, Some("0")),
            (words::PORT, Some("65536")),
            (words::HEALTH_PORT, Some("-1")),
            (words::APP_DATABASE, Some(long.as_str())),
            (words::APP_DATABASE, Some("a\nb")),
            (words::EXTENSIONS, Some(long.as_str())),
        ];
        for (name, value) in cases {
            let error = variables(name, value).unwrap_err().to_string();
            assert!(error.contains(name), "{name}={value:?}: {error}");
        }
    }
}
