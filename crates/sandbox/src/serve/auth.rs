//! Who asks: the administrator by the token of the kubeconfig, a pod by a service-account token. Nobody else.
//!
//! Authorisation is not here, because there is none yet: whoever is known may do everything (`docs/sandbox.md`, RBAC: ABSENT).

use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;
use ring::hmac;
use std::sync::Arc;

use super::pki::Pki;
use super::status::{Reason, Refusal};
use super::token::{Claims, Reference, TokenKey};
use crate::core::{State, User};

/// What may be asked without saying who one is: what load balancers and people look at first.
const OPEN_PATHS: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];
const ADMINISTRATOR: &str = "kubernetes-admin";
const ANONYMOUS: &str = "system:anonymous";
/// Impersonation would need authorisation to be safe, and ignoring it would do as the administrator what was asked as somebody else.
const IMPERSONATION_PREFIX: &str = "impersonate-";

pub(super) struct Authenticator {
    /// Comparing keyed digests takes the same time wherever two tokens begin to differ.
    digest_key: hmac::Key,
    administrator: hmac::Tag,
    token_key: Arc<TokenKey>,
}

impl Authenticator {
    /// `secret` is fresh randomness: the key under which tokens are compared.
    pub(super) fn new(pki: &Pki, secret: &[u8; 32]) -> Self {
        let digest_key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let administrator = hmac::sign(&digest_key, pki.administrator_token().as_bytes());
        Self {
            digest_key,
            administrator,
            token_key: pki.token_key(),
        }
    }

    pub(super) fn authenticate(
        &self,
        path: &str,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<Known, Refusal> {
        if headers
            .keys()
            .any(|name| name.as_str().starts_with(IMPERSONATION_PREFIX))
        {
            return Err(Refusal::new(
                Reason::NotImplemented,
                "this server has no impersonation (kubectl --as); ask without it",
            ));
        }
        let Some(header) = headers.get(AUTHORIZATION) else {
            return if OPEN_PATHS.contains(&path) {
                Ok(Known::Anonymous)
            } else {
                Err(unauthorized())
            };
        };
        let token = header
            .to_str()
            .ok()
            .and_then(bearer)
            .ok_or_else(unauthorized)?;
        if hmac::verify(
            &self.digest_key,
            token.as_bytes(),
            self.administrator.as_ref(),
        )
        .is_ok()
        {
            return Ok(Known::Administrator);
        }
        match self.token_key.verify(token, now) {
            Ok(claims) => Ok(Known::ServiceAccount(Box::new(claims))),
            Err(error) => {
                tracing::debug!(%error, "a bearer token was refused");
                Err(unauthorized())
            }
        }
    }
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn unauthorized() -> Refusal {
    Refusal::new(Reason::Unauthorized, "Unauthorized")
}

/// Somebody whose token is right; whether the account behind it still exists is asked with [`Known::user`].
#[derive(Clone, Debug)]
pub(super) enum Known {
    Anonymous,
    Administrator,
    ServiceAccount(Box<Claims>),
}

impl Known {
    /// The user, if everything its token is bound to is still there.
    pub(super) fn user(&self, state: &State) -> Result<User, Refusal> {
        match self {
            Known::Anonymous => Ok(User {
                name: ANONYMOUS.to_owned(),
                groups: vec!["system:unauthenticated".to_owned()],
            }),
            Known::Administrator => Ok(administrator()),
            Known::ServiceAccount(claims) => {
                service_account(claims, state).ok_or_else(unauthorized)
            }
        }
    }
}

/// The user of the kubeconfig, and of everything that runs in this process.
pub fn administrator() -> User {
    User {
        name: ADMINISTRATOR.to_owned(),
        groups: vec![
            "system:masters".to_owned(),
            "system:authenticated".to_owned(),
        ],
    }
}

/// The user name of a service account.
pub(super) fn service_account_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

fn service_account(claims: &Claims, state: &State) -> Option<User> {
    let binding = &claims.binding;
    let namespace = &binding.namespace;
    let exists = |resource: &str, namespace: &str, reference: &Reference| {
        let found = state.get(resource, namespace, &reference.name);
        found.is_some_and(|object| object["metadata"]["uid"] == reference.uid)
    };
    let bound = |resource: &str, reference: &Option<Reference>| {
        reference
            .as_ref()
            .is_none_or(|reference| exists(resource, namespace, reference))
    };
    let is_valid = exists("serviceaccounts", namespace, &binding.serviceaccount)
        && bound("pods", &binding.pod)
        && bound("secrets", &binding.secret);
    is_valid.then(|| User {
        name: service_account_name(namespace, &binding.serviceaccount.name),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ],
    })
}
