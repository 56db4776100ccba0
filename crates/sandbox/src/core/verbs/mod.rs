//! One request from beginning to end: find the kind, find the verb, do it, show the result. The same for every kind.

mod create;
mod delete;
mod list;
mod options;
mod patch;
mod read;
mod review;
mod scale;
mod subresource;
mod update;
mod watch;

use std::sync::Arc;

use http::Method;
use jiff::Timestamp;
use rand::RngCore;
use serde_json::Value;

use super::error::{Details, Failure, Outcome, Reason};
use super::kind::{KindInfo, Scope};
use super::path::{self, Target};
use super::registry::builtin::Service;
use super::request::Request;
use super::response::{Change, Response, View};
use super::state::State;
use super::strategy::Admission;
use super::{convert, limits, negotiate};
use crate::present;

/// What a request works with while it is answered.
pub(crate) struct Call<'a> {
    pub state: &'a mut State,
    pub request: &'a Request,
    pub now: Timestamp,
    pub rng: &'a mut dyn RngCore,
    pub changes: Vec<Change>,
    pub warnings: Vec<String>,
    pub view: View,
}

/// An address that is served: a kind, where, and which object of it.
pub(crate) struct Place {
    pub kind: Arc<KindInfo>,
    /// Empty for cluster-scoped kinds; `None` for all namespaces.
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

/// Answers one request. Every write it makes is in the returned changes, in order; a refusal has none.
pub fn handle(
    state: &mut State,
    request: &Request,
    now: Timestamp,
    rng: &mut dyn RngCore,
) -> (Response, Vec<Change>) {
    if request.body.len() > limits::BODY_BYTES {
        let message = format!("Request entity too large: limit is {}", limits::BODY_BYTES);
        let failure = Failure::new(413, Reason::RequestEntityTooLarge, message);
        return (failure.response(Vec::new()), Vec::new());
    }
    let Some(target) = path::parse(&request.path) else {
        let response = present::document(state, request).unwrap_or_else(page_not_found);
        return (response, Vec::new());
    };
    if !state.serves(&target.group, &target.version) {
        return (page_not_found(), Vec::new());
    }
    let mut call = Call {
        state,
        request,
        now,
        rng,
        changes: Vec::new(),
        warnings: Vec::new(),
        view: View::Object,
    };
    let before = call.state.revision();
    match call.answer(target) {
        Ok(response) => (call.with_warnings(response), call.changes),
        Err(failure) => {
            debug_assert_eq!(before, call.state.revision(), "a refusal changes nothing");
            (failure.response(call.warnings), call.changes)
        }
    }
}

fn page_not_found() -> Response {
    Response::Text {
        status: 404,
        body: "404 page not found\n".to_owned(),
    }
}

impl Call<'_> {
    fn answer(&mut self, target: Target) -> Outcome<Response> {
        let place = self.resolve(target)?;
        self.view = negotiate::view(&self.request.accept)?;
        if let Some(deprecation) = &place.kind.deprecation {
            self.warnings.push(deprecation.clone());
        }
        if place.subresource.is_some() {
            return self.subresource(&place);
        }
        let verb = self.verb(&place)?;
        if !place.kind.verbs.contains(&verb) {
            return Err(Failure::method_not_allowed());
        }
        match verb {
            "get" => self.get(&place),
            "list" => self.list(&place),
            "watch" => self.watch(&place),
            "create" => self.create(&place),
            "update" => self.update(&place),
            "patch" => self.patch(&place),
            "delete" => self.delete(&place),
            _ => self.delete_collection(&place),
        }
    }

    fn resolve(&self, target: Target) -> Outcome<Place> {
        let Target {
            group,
            version,
            namespace,
            plural,
            name,
            subresource,
        } = target;
        let kind = self
            .state
            .kind(&group, &version, &plural)
            .cloned()
            .ok_or_else(Failure::unknown_resource)?;
        let namespace = match (kind.scope, namespace) {
            (Scope::Cluster, Some(_)) => return Err(Failure::unknown_resource()),
            (Scope::Namespaced, None) if name.is_some() => return Err(Failure::unknown_resource()),
            (Scope::Cluster, None) => Some(String::new()),
            (Scope::Namespaced, namespace) => namespace,
        };
        if let Some(subresource) = &subresource
            && kind.subresource(subresource).is_none()
        {
            return Err(Failure::unknown_resource());
        }
        Ok(Place {
            kind,
            namespace,
            name,
            subresource,
        })
    }

    /// A request's verb, as discovery and RBAC name it.
    fn verb(&self, place: &Place) -> Outcome<&'static str> {
        let is_watch = self
            .request
            .parameter("watch")
            .is_some_and(|value| !matches!(value, "false" | "0"));
        match (&self.request.method, place.name.is_some()) {
            (&Method::GET, _) if is_watch => Ok("watch"),
            (&Method::GET, true) => Ok("get"),
            (&Method::GET, false) => Ok("list"),
            (&Method::POST, false) if place.namespace.is_some() => Ok("create"),
            (&Method::PUT, true) => Ok("update"),
            (&Method::PATCH, true) => Ok("patch"),
            (&Method::DELETE, true) => Ok("delete"),
            (&Method::DELETE, false) if place.namespace.is_some() => Ok("deletecollection"),
            _ => Err(Failure::method_not_allowed()),
        }
    }

    fn with_warnings(&mut self, response: Response) -> Response {
        match response {
            Response::Json {
                status,
                body,
                mut warnings,
            } => {
                warnings.append(&mut self.warnings);
                Response::Json {
                    status,
                    body,
                    warnings,
                }
            }
            other => other,
        }
    }

    /// An object as stored, shown as this client wants it.
    fn show(&self, kind: &KindInfo, status: u16, object: &Arc<Value>) -> Response {
        let served = convert::from_stored(kind, object);
        Response::Json {
            status,
            body: present::object(self.view, kind, &served, self.now),
            warnings: Vec::new(),
        }
    }

    fn find(&self, place: &Place) -> Outcome<Arc<Value>> {
        let (namespace, name) = place.object();
        self.state
            .get(&place.kind.resource, namespace, name)
            .cloned()
            .ok_or_else(|| Failure::not_found(&place.kind.resource_named(name)))
    }

    fn admission(&mut self) -> Admission<'_> {
        Admission {
            state: self.state,
            rng: self.rng,
            now: self.now,
        }
    }

    /// Refuses kinds that would only pretend to work, and says of others what is missing.
    fn check_service(&mut self, kind: &KindInfo) -> Outcome<()> {
        match kind.row().map(|row| row.service) {
            Some(Service::Refused(reason)) => {
                Err(Failure::not_implemented(format!("{}: {reason}", kind.kind))
                    .with_details(Details::default()))
            }
            Some(Service::StoredOnly(note)) => {
                self.warnings.push(format!("{}: {note}", kind.kind));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Place {
    /// Namespace and name, for a place that has a name.
    fn object(&self) -> (&str, &str) {
        (
            self.namespace.as_deref().unwrap_or_default(),
            self.name.as_deref().unwrap_or_default(),
        )
    }
}
