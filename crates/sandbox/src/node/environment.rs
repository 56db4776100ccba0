//! A container's environment and command line: pure, from the pod, its image and the Secrets and ConfigMaps it names.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, EnvVarSource, Pod, Secret};

use super::images::Image;

/// Objects a pod refers to, as they were when they were last read. `None` is an object that does not exist.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    pub secrets: BTreeMap<String, Option<Secret>>,
    pub config_maps: BTreeMap<String, Option<ConfigMap>>,
}

/// Names of objects to read before a pod's container can start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    pub secrets: BTreeSet<String>,
    pub config_maps: BTreeSet<String>,
}

/// Where the pod runs; what the downward API knows beyond the pod itself.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub pod_ip: Ipv4Addr,
    pub host_ip: Ipv4Addr,
}

/// A person has to change the pod, or make the object it names. The texts are the ones known from a kubelet.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum EnvironmentError {
    #[error("secret {0:?} not found")]
    NoSecret(String),
    #[error("configmap {0:?} not found")]
    NoConfigMap(String),
    #[error("couldn't find key {key} in Secret {namespace}/{name}")]
    NoSecretKey {
        key: String,
        namespace: String,
        name: String,
    },
    #[error("couldn't find key {key} in ConfigMap {namespace}/{name}")]
    NoConfigMapKey {
        key: String,
        namespace: String,
        name: String,
    },
    #[error("environment variable {0} takes a value that is not text; mount it as a file instead")]
    NotText(String),
    #[error(
        "environment variable {variable} asks for field {field:?}, which the sandbox's node does not know"
    )]
    UnknownField { variable: String, field: String },
    #[error(
        "environment variable {0} takes its value from a source the sandbox's node does not have (resourceFieldRef, fileKeyRef)"
    )]
    UnknownSource(String),
    #[error(
        "environment variable {0:?} has a name or value that no process can have (empty, or with '=' or a zero byte)"
    )]
    Impossible(String),
    #[error("no command specified")]
    NoCommand,
}

/// The objects the container's environment needs.
pub fn references(container: &Container) -> References {
    let mut references = References::default();
    for source in container.env_from.iter().flatten() {
        references.secrets.extend(
            source
                .secret_ref
                .iter()
                .map(|reference| reference.name.clone()),
        );
        references.config_maps.extend(
            source
                .config_map_ref
                .iter()
                .map(|reference| reference.name.clone()),
        );
    }
    for source in container
        .env
        .iter()
        .flatten()
        .filter_map(|variable| variable.value_from.as_ref())
    {
        references.secrets.extend(
            source
                .secret_key_ref
                .iter()
                .map(|reference| reference.name.clone()),
        );
        references.config_maps.extend(
            source
                .config_map_key_ref
                .iter()
                .map(|reference| reference.name.clone()),
        );
    }
    references
}

/// Variables in a stable order, later ones winning over earlier ones of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables(Vec<(String, String)>);

impl Variables {
    pub fn set(&mut self, name: &str, value: String) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Everything the process will find in its environment: `base` (what the node sets), then the image's, then `envFrom`, then `env`.
pub fn resolve(
    pod: &Pod,
    container: &Container,
    image: &Image,
    base: &[(String, String)],
    place: Place,
    objects: &Objects,
) -> Result<Variables, EnvironmentError> {
    let mut variables = Variables::default();
    for (name, value) in base.iter().chain(&image.environment) {
        variables.set(name, value.clone());
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let lookup = Lookup {
        pod,
        namespace,
        place,
        objects,
    };
    for source in container.env_from.iter().flatten() {
        lookup.import(source, &mut variables)?;
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = lookup.value(variable, &variables)? {
            variables.set(&variable.name, value);
        }
    }
    let impossible = variables.iter().find(|(name, value)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    });
    match impossible {
        Some((name, _)) => Err(EnvironmentError::Impossible(name.to_owned())),
        None => Ok(variables),
    }
}

struct Lookup<'a> {
    pod: &'a Pod,
    namespace: &'a str,
    place: Place,
    objects: &'a Objects,
}

impl Lookup<'_> {
    fn import(
        &self,
        source: &k8s_openapi::api::core::v1::EnvFromSource,
        variables: &mut Variables,
    ) -> Result<(), EnvironmentError> {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if let Some(reference) = &source.config_map_ref {
            match self.config_map(&reference.name) {
                Some(map) => map.data.iter().flatten().for_each(|(key, value)| {
                    variables.set(&format!("{prefix}{key}"), value.clone());
                }),
                None if reference.optional == Some(true) => {}
                None => return Err(EnvironmentError::NoConfigMap(reference.name.clone())),
            }
        }
        if let Some(reference) = &source.secret_ref {
            match self.secret(&reference.name) {
                Some(secret) => {
                    for (key, value) in secret.data.iter().flatten() {
                        let name = format!("{prefix}{key}");
                        let value = String::from_utf8(value.0.clone())
                            .map_err(|_| EnvironmentError::NotText(name.clone()))?;
                        variables.set(&name, value);
                    }
                }
                None if reference.optional == Some(true) => {}
                None => return Err(EnvironmentError::NoSecret(reference.name.clone())),
            }
        }
        Ok(())
    }

    /// `None` is an optional source that is not there: the variable is then not set at all.
    fn value(
        &self,
        variable: &EnvVar,
        known: &Variables,
    ) -> Result<Option<String>, EnvironmentError> {
        match &variable.value_from {
            None => Ok(Some(expand(
                variable.value.as_deref().unwrap_or_default(),
                known,
            ))),
            Some(source) => self.sourced(variable, source),
        }
    }

    fn sourced(
        &self,
        variable: &EnvVar,
        source: &EnvVarSource,
    ) -> Result<Option<String>, EnvironmentError> {
        if let Some(reference) = &source.field_ref {
            let value = field(self.pod, Some(self.place), &reference.field_path);
            return value
                .map(Some)
                .ok_or_else(|| EnvironmentError::UnknownField {
                    variable: variable.name.clone(),
                    field: reference.field_path.clone(),
                });
        }
        if let Some(reference) = &source.secret_key_ref {
            let optional = reference.optional == Some(true);
            let Some(secret) = self.secret(&reference.name) else {
                return if optional {
                    Ok(None)
                } else {
                    Err(EnvironmentError::NoSecret(reference.name.clone()))
                };
            };
            return match secret
                .data
                .as_ref()
                .and_then(|data| data.get(&reference.key))
            {
                Some(value) => String::from_utf8(value.0.clone())
                    .map(Some)
                    .map_err(|_| EnvironmentError::NotText(variable.name.clone())),
                None if optional => Ok(None),
                None => Err(EnvironmentError::NoSecretKey {
                    key: reference.key.clone(),
                    namespace: self.namespace.to_owned(),
                    name: reference.name.clone(),
                }),
            };
        }
        if let Some(reference) = &source.config_map_key_ref {
            let optional = reference.optional == Some(true);
            let Some(map) = self.config_map(&reference.name) else {
                return if optional {
                    Ok(None)
                } else {
                    Err(EnvironmentError::NoConfigMap(reference.name.clone()))
                };
            };
            return match map.data.as_ref().and_then(|data| data.get(&reference.key)) {
                Some(value) => Ok(Some(value.clone())),
                None if optional => Ok(None),
                None => Err(EnvironmentError::NoConfigMapKey {
                    key: reference.key.clone(),
                    namespace: self.namespace.to_owned(),
                    name: reference.name.clone(),
                }),
            };
        }
        Err(EnvironmentError::UnknownSource(variable.name.clone()))
    }

    fn secret(&self, name: &str) -> Option<&Secret> {
        self.objects.secrets.get(name).and_then(Option::as_ref)
    }

    fn config_map(&self, name: &str) -> Option<&ConfigMap> {
        self.objects.config_maps.get(name).and_then(Option::as_ref)
    }
}

/// A field of the downward API. Addresses are known only once the pod has them; a volume is not allowed to ask for them.
pub fn field(pod: &Pod, place: Option<Place>, path: &str) -> Option<String> {
    let metadata = &pod.metadata;
    let spec = pod.spec.as_ref();
    if let Some(key) = path
        .strip_prefix("metadata.labels['")
        .and_then(|rest| rest.strip_suffix("']"))
    {
        return Some(
            metadata
                .labels
                .as_ref()
                .and_then(|labels| labels.get(key))
                .cloned()
                .unwrap_or_default(),
        );
    }
    if let Some(key) = path
        .strip_prefix("metadata.annotations['")
        .and_then(|rest| rest.strip_suffix("']"))
    {
        return Some(
            metadata
                .annotations
                .as_ref()
                .and_then(|annotations| annotations.get(key))
                .cloned()
                .unwrap_or_default(),
        );
    }
    match path {
        "metadata.name" => metadata.name.clone(),
        "metadata.namespace" => metadata.namespace.clone(),
        "metadata.uid" => metadata.uid.clone(),
        "metadata.labels" => Some(listing(metadata.labels.as_ref())),
        "metadata.annotations" => Some(listing(metadata.annotations.as_ref())),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => Some(
            spec.and_then(|spec| spec.service_account_name.clone())
                .unwrap_or_default(),
        ),
        "status.podIP" | "status.podIPs" => place.map(|place| place.pod_ip.to_string()),
        "status.hostIP" | "status.hostIPs" => place.map(|place| place.host_ip.to_string()),
        _ => None,
    }
}

/// `key="value"` lines, the form the downward API gives whole maps in.
fn listing(map: Option<&BTreeMap<String, String>>) -> String {
    map.into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// `$(NAME)` becomes the variable's value; an unknown one stays as it is; `$$` is a plain `$`.
pub fn expand(text: &str, variables: &Variables) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            expanded.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after
            .strip_prefix('(')
            .and_then(|inner| inner.split_once(')'))
        {
            match variables.get(name) {
                Some(value) => expanded.push_str(value),
                None => expanded.push_str(&rest[at..at + 3 + name.len()]),
            }
            rest = tail;
        } else {
            expanded.push('$');
            rest = after;
        }
    }
    expanded.push_str(rest);
    expanded
}

/// The command line: the container's words over the image's, expanded.
pub fn command(
    container: &Container,
    image: &Image,
    variables: &Variables,
) -> Result<Vec<String>, EnvironmentError> {
    let asked = container.command.as_ref().filter(|words| !words.is_empty());
    let arguments = container.args.as_ref().filter(|words| !words.is_empty());
    let words: Vec<&String> = match (asked, arguments) {
        (Some(command), arguments) => command
            .iter()
            .chain(arguments.into_iter().flatten())
            .collect(),
        (None, Some(arguments)) => image.entrypoint.iter().chain(arguments).collect(),
        (None, None) => image.entrypoint.iter().chain(&image.arguments).collect(),
    };
    if words.is_empty() || words[0].is_empty() {
        return Err(EnvironmentError::NoCommand);
    }
    Ok(words
        .into_iter()
        .map(|word| expand(word, variables))
        .collect())
}

#[cfg(test)]
#[path = "environment_tests.rs"]
mod tests;
