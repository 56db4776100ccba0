//! `POST serviceaccounts/NAME/token`: mints the tokens pods and people use. The token itself is made in `token`.

use jiff::Timestamp;
use rand::RngCore;
use serde_json::{Value, json};

use super::auth::service_account_name;
use super::status::{Reason, Refusal};
use super::token::{Binding, Claims, ISSUER, Reference, TokenKey};
use crate::core::State;

/// What a cluster gives when nothing is asked.
const DEFAULT_EXPIRATION_SECONDS: i64 = 3600;
/// A cluster's limits: shorter ones would have to be renewed all the time, longer ones are as good as for ever.
const SHORTEST_EXPIRATION_SECONDS: i64 = 600;
const LONGEST_EXPIRATION_SECONDS: i64 = 1 << 32;

/// Answers a `TokenRequest` for the service account.
pub(super) fn token(
    state: &State,
    key: &TokenKey,
    namespace: &str,
    name: &str,
    body: &[u8],
    now: Timestamp,
    random: &mut dyn RngCore,
) -> Result<Value, Refusal> {
    let mut request = parse(body)?;
    let account = state
        .get("serviceaccounts", namespace, name)
        .ok_or_else(|| Refusal::not_found("serviceaccounts", name))?;
    let spec = request.get("spec").cloned().unwrap_or_default();
    let expiration = expiration(&spec)?;
    let mut audiences = strings(&spec["audiences"])?;
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    let mut binding = Binding {
        namespace: namespace.to_owned(),
        node: None,
        pod: None,
        secret: None,
        serviceaccount: Reference {
            name: name.to_owned(),
            uid: text(account, "/metadata/uid"),
        },
    };
    bind(state, &spec["boundObjectRef"], name, &mut binding)?;
    let mut unique = [0_u8; 16];
    random.fill_bytes(&mut unique);
    let expires =
        Timestamp::from_second(now.as_second().saturating_add(expiration)).map_err(|_| {
            invalid(
                "spec.expirationSeconds",
                expiration,
                "ends after the end of time",
            )
        })?;
    let claims = Claims {
        aud: audiences.clone(),
        exp: expires.as_second(),
        iat: now.as_second(),
        iss: ISSUER.to_owned(),
        jti: uuid::Builder::from_random_bytes(unique)
            .into_uuid()
            .to_string(),
        binding,
        nbf: now.as_second(),
        sub: service_account_name(namespace, name),
    };
    let token = key.sign(&claims).ok_or_else(|| {
        Refusal::new(
            Reason::InternalError,
            "failed to sign the token: this machine gives no randomness",
        )
    })?;
    request["kind"] = "TokenRequest".into();
    request["apiVersion"] = "authentication.k8s.io/v1".into();
    let uid = text(account, "/metadata/uid");
    request["metadata"] = json!({"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": seconds(now)});
    request["spec"] = json!({"audiences": audiences, "expirationSeconds": expiration, "boundObjectRef": spec["boundObjectRef"]});
    request["status"] = json!({"token": token, "expirationTimestamp": seconds(expires)});
    Ok(request)
}

fn parse(body: &[u8]) -> Result<Value, Refusal> {
    let bad = |detail: String| {
        Refusal::new(
            Reason::BadRequest,
            format!("the body should be a TokenRequest in JSON: {detail}"),
        )
    };
    if body.is_empty() {
        return Ok(json!({}));
    }
    let request: Value = serde_json::from_slice(body).map_err(|error| bad(error.to_string()))?;
    if !request.is_object() {
        return Err(bad("it is no object".to_owned()));
    }
    match request.get("kind").and_then(Value::as_str) {
        None | Some("" | "TokenRequest") => Ok(request),
        Some(other) => Err(bad(format!("it is a {other}"))),
    }
}

fn expiration(spec: &Value) -> Result<i64, Refusal> {
    let field = "spec.expirationSeconds";
    match spec.get("expirationSeconds") {
        None | Some(Value::Null) => Ok(DEFAULT_EXPIRATION_SECONDS),
        Some(value) => match value.as_i64() {
            None => Err(Refusal::new(
                Reason::BadRequest,
                format!("{field} should be a number, but is {value}"),
            )),
            Some(short) if short < SHORTEST_EXPIRATION_SECONDS => Err(invalid(
                field,
                short,
                "may not specify a duration less than 10 minutes",
            )),
            Some(long) if long > LONGEST_EXPIRATION_SECONDS => Err(invalid(
                field,
                long,
                "may not specify a duration larger than 2^32 seconds",
            )),
            Some(seconds) => Ok(seconds),
        },
    }
}

fn invalid(field: &str, value: i64, detail: &str) -> Refusal {
    let mut refusal = Refusal::new(
        Reason::Invalid,
        format!(
            "TokenRequest.authentication.k8s.io \"\" is invalid: {field}: Invalid value: {value}: {detail}"
        ),
    );
    refusal.body["details"] = json!({
        "group": "authentication.k8s.io", "kind": "TokenRequest",
        "causes": [{"reason": "FieldValueInvalid", "message": format!("Invalid value: {value}: {detail}"), "field": field}],
    });
    refusal
}

fn strings(value: &Value) -> Result<Vec<String>, Refusal> {
    let wrong = || {
        Refusal::new(
            Reason::BadRequest,
            "spec.audiences should be a list of strings",
        )
    };
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(entries) => entries
            .iter()
            .map(|entry| entry.as_str().map(str::to_owned).ok_or_else(wrong))
            .collect(),
        _ => Err(wrong()),
    }
}

/// A token that is bound to an object dies with it.
fn bind(
    state: &State,
    reference: &Value,
    account: &str,
    binding: &mut Binding,
) -> Result<(), Refusal> {
    if reference.is_null() {
        return Ok(());
    }
    let (kind, name) = (text(reference, "/kind"), text(reference, "/name"));
    let resource = match kind.as_str() {
        "Pod" => "pods",
        "Secret" => "secrets",
        other => {
            return Err(Refusal::new(
                Reason::BadRequest,
                format!(
                    "cannot bind a token to an object of kind {other:?}: this server knows Pod and Secret"
                ),
            ));
        }
    };
    let object = state
        .get(resource, &binding.namespace, &name)
        .ok_or_else(|| Refusal::not_found(resource, &name))?;
    let (wanted, found) = (text(reference, "/uid"), text(object, "/metadata/uid"));
    if !wanted.is_empty() && wanted != found {
        let message = format!(
            "Operation cannot be fulfilled on {resource} {name:?}: the UID in the bound object reference ({wanted}) does not match the UID \
             in record. The object might have been deleted and then recreated"
        );
        return Err(Refusal::new(Reason::Conflict, message).about(resource, &name));
    }
    let bound = Reference { name, uid: found };
    if resource == "secrets" {
        binding.secret = Some(bound);
        return Ok(());
    }
    if text(object, "/spec/serviceAccountName") != account {
        return Err(Refusal::new(
            Reason::BadRequest,
            format!(
                "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
            ),
        ));
    }
    let node = text(object, "/spec/nodeName");
    if let Some(found) = state.get("nodes", "", &node) {
        binding.node = Some(Reference {
            name: node,
            uid: text(found, "/metadata/uid"),
        });
    }
    binding.pod = Some(bound);
    Ok(())
}

fn text(object: &Value, pointer: &str) -> String {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// Kubernetes writes times in whole seconds.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
