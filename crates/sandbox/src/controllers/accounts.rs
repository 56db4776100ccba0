//! What every namespace has: the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt` with the server's CA.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use super::cache::Cache;
use super::worker::{self, Controller, Decision, Failure};

pub(super) const ROOT_CA: &str = "kube-root-ca.crt";
const DEFAULT_ACCOUNT: &str = "default";

pub(super) struct Accounts {
    pub client: Client,
    pub certificate_authority: String,
    pub namespaces: Cache<Namespace>,
    pub accounts: Cache<ServiceAccount>,
    /// Only those named [`ROOT_CA`].
    pub authorities: Cache<ConfigMap>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    CreateAccount { namespace: String },
    CreateAuthority { namespace: String },
    CorrectAuthority { namespace: String },
}

impl worker::Action for Action {
    fn key(&self) -> String {
        format!("{self:?}")
    }
}

fn decide(
    namespaces: &[Arc<Namespace>],
    accounts: &[Arc<ServiceAccount>],
    authorities: &[Arc<ConfigMap>],
    wanted: &str,
) -> Vec<Action> {
    let mut actions = Vec::new();
    for namespace in namespaces
        .iter()
        .filter(|namespace| namespace.metadata.deletion_timestamp.is_none())
    {
        let Some(name) = namespace.metadata.name.clone() else {
            continue;
        };
        let has_account = accounts.iter().any(|account| {
            account.metadata.namespace.as_ref() == Some(&name)
                && account.metadata.name.as_deref() == Some(DEFAULT_ACCOUNT)
        });
        if !has_account {
            actions.push(Action::CreateAccount {
                namespace: name.clone(),
            });
        }
        match authorities
            .iter()
            .find(|authority| authority.metadata.namespace.as_ref() == Some(&name))
        {
            None => actions.push(Action::CreateAuthority { namespace: name }),
            Some(authority) => {
                let held = authority.data.as_ref().and_then(|data| data.get("ca.crt"));
                if held.map(String::as_str) != Some(wanted) {
                    actions.push(Action::CorrectAuthority { namespace: name });
                }
            }
        }
    }
    actions
}

impl Controller for Accounts {
    const NAME: &'static str = "accounts";
    type Action = Action;

    fn synced(&self) -> bool {
        self.namespaces.synced() && self.accounts.synced() && self.authorities.synced()
    }

    fn decide(&self, _now: Timestamp) -> Decision<Action> {
        let (namespaces, accounts, authorities) = (
            self.namespaces.all(),
            self.accounts.all(),
            self.authorities.all(),
        );
        Decision::of(decide(
            &namespaces,
            &accounts,
            &authorities,
            &self.certificate_authority,
        ))
    }

    async fn act(&self, action: &Action) -> Result<(), Failure> {
        match action {
            Action::CreateAccount { namespace } => {
                let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
                let metadata = ObjectMeta {
                    name: Some(DEFAULT_ACCOUNT.to_owned()),
                    ..ObjectMeta::default()
                };
                let account = ServiceAccount {
                    metadata,
                    ..ServiceAccount::default()
                };
                self.accounts
                    .overlay(api.create(&PostParams::default(), &account).await?);
            }
            Action::CreateAuthority { namespace } => {
                let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
                let data =
                    BTreeMap::from([("ca.crt".to_owned(), self.certificate_authority.clone())]);
                let metadata = ObjectMeta {
                    name: Some(ROOT_CA.to_owned()),
                    ..ObjectMeta::default()
                };
                let map = ConfigMap {
                    metadata,
                    data: Some(data),
                    ..ConfigMap::default()
                };
                self.authorities
                    .overlay(api.create(&PostParams::default(), &map).await?);
            }
            Action::CorrectAuthority { namespace } => {
                let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
                let patch = json!({"data": {"ca.crt": self.certificate_authority}});
                self.authorities.overlay(
                    api.patch(ROOT_CA, &PatchParams::default(), &Patch::Merge(&patch))
                        .await?,
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::DeserializeOwned;
    use serde_json::Value;

    fn object<K: DeserializeOwned>(value: Value) -> Arc<K> {
        Arc::new(serde_json::from_value(value).expect("an object"))
    }

    #[test]
    fn every_living_namespace_gets_both_and_they_are_kept_right() {
        let namespaces = [
            object(json!({"metadata": {"name": "grove"}})),
            object(
                json!({"metadata": {"name": "going", "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            ),
        ];
        let grove = || "grove".to_owned();
        assert_eq!(
            decide(&namespaces, &[], &[], "CA"),
            [
                Action::CreateAccount { namespace: grove() },
                Action::CreateAuthority { namespace: grove() }
            ]
        );
        let accounts = [object(
            json!({"metadata": {"name": "default", "namespace": "grove"}}),
        )];
        let stale = [object(
            json!({"metadata": {"name": ROOT_CA, "namespace": "grove"}, "data": {"ca.crt": "OLD"}}),
        )];
        assert_eq!(
            decide(&namespaces, &accounts, &stale, "CA"),
            [Action::CorrectAuthority { namespace: grove() }]
        );
        let right = [object(
            json!({"metadata": {"name": ROOT_CA, "namespace": "grove"}, "data": {"ca.crt": "CA"}}),
        )];
        assert!(decide(&namespaces, &accounts, &right, "CA").is_empty());
    }
}
