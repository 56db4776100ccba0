//! Reading many objects: selectors, versions, pages.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use super::options::invalid;
use super::read::parse_version;
use super::{Call, Place};
use crate::core::convert;
use crate::core::error::{Cause, Failure, Outcome, Reason};
use crate::core::request::Request;
use crate::core::response::Response;
use crate::core::selector::Selector;
use crate::core::state::{Key, Objects};
use crate::present;

const OPTIONS: &str = "ListOptions";
/// What a continue token says it is.
const TOKEN_VERSION: &str = "meta.k8s.io/v1";
/// In a token: go on with whatever is there now.
const INCONSISTENT: i64 = -1;

/// Where a paged list goes on.
struct Continue {
    /// The revision the list is of; `None` to go on inconsistently.
    revision: Option<u64>,
    /// The last object that was shown.
    after: Key,
}

impl Call<'_> {
    pub(super) fn list(&mut self, place: &Place) -> Outcome<Response> {
        let selector = Selector::of(self.request, &place.kind)?;
        let limit = limit(self.request)?;
        let (revision, after) = self.position()?;
        let namespace = place
            .namespace
            .as_deref()
            .filter(|namespace| !namespace.is_empty());
        let objects = self
            .state
            .snapshot(&place.kind.resource, namespace, revision)?;
        let page = Page::of(&objects, &selector, after, limit);
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".into(), revision.to_string().into());
        if let Some(last) = &page.last
            && page.remaining > 0
        {
            metadata.insert("continue".into(), token(Some(revision), last).into());
            if selector.is_everything() {
                metadata.insert("remainingItemCount".into(), page.remaining.into());
            }
        }
        let items: Vec<Arc<Value>> = page
            .items
            .iter()
            .map(|object| convert::from_stored(&place.kind, object))
            .collect();
        let body = present::list(
            self.view,
            &place.kind,
            &items,
            Value::Object(metadata),
            self.now,
        );
        Ok(Response::Json {
            status: 200,
            body,
            warnings: Vec::new(),
        })
    }

    /// The revision to read at, and after which object.
    fn position(&self) -> Outcome<(u64, Option<Key>)> {
        let request = self.request;
        let current = self.state.revision();
        check_list_options(request)?;
        if let Some(text) = request
            .parameter("continue")
            .filter(|text| !text.is_empty())
        {
            let token = parse_token(text)?;
            let Some(revision) = token.revision else {
                return Ok((current, Some(token.after)));
            };
            if revision > current {
                return Err(Failure::too_large_version(revision, current));
            }
            if revision < self.state.history_start() {
                return Err(expired(&token.after));
            }
            return Ok((revision, Some(token.after)));
        }
        let asked = parse_version(request.parameter("resourceVersion").unwrap_or_default())?
            .unwrap_or_default();
        if asked > current {
            return Err(Failure::too_large_version(asked, current));
        }
        match request.parameter("resourceVersionMatch") {
            Some("Exact") => Ok((asked, None)),
            _ => Ok((current, None)),
        }
    }
}

fn limit(request: &Request) -> Outcome<Option<usize>> {
    let text = request.parameter("limit").unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    let limit: i64 = text.parse().map_err(|_| {
        Failure::bad_request(format!(
            "strconv.ParseInt: parsing {text:?}: invalid syntax"
        ))
    })?;
    Ok(usize::try_from(limit).ok().filter(|limit| *limit > 0))
}

fn check_list_options(request: &Request) -> Outcome<()> {
    if request
        .parameter("sendInitialEvents")
        .is_some_and(|value| !value.is_empty())
    {
        return Err(invalid(
            OPTIONS,
            Cause::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ),
        ));
    }
    let version = request.parameter("resourceVersion").unwrap_or_default();
    let refuse = |detail: &str| {
        Err(invalid(
            OPTIONS,
            Cause::forbidden("resourceVersionMatch", detail),
        ))
    };
    match request
        .parameter("resourceVersionMatch")
        .unwrap_or_default()
    {
        "" => Ok(()),
        _ if version.is_empty() => {
            refuse("resourceVersionMatch is forbidden unless resourceVersion is provided")
        }
        _ if request
            .parameter("continue")
            .is_some_and(|token| !token.is_empty()) =>
        {
            refuse("resourceVersionMatch is forbidden when continue is provided")
        }
        "Exact" if version == "0" => {
            refuse("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
        }
        "Exact" | "NotOlderThan" => Ok(()),
        other => Err(invalid(
            OPTIONS,
            Cause::not_supported(
                "resourceVersionMatch",
                &other.into(),
                &["Exact", "NotOlderThan", ""],
            ),
        )),
    }
}

struct Page<'a> {
    items: Vec<&'a Arc<Value>>,
    last: Option<Key>,
    remaining: usize,
}

impl Page<'_> {
    fn of<'a>(
        objects: &'a Objects,
        selector: &Selector,
        after: Option<Key>,
        limit: Option<usize>,
    ) -> Page<'a> {
        use std::ops::Bound::{Excluded, Unbounded};
        let begin = after.map_or(Unbounded, Excluded);
        let limit = limit.unwrap_or(usize::MAX);
        let mut page = Page {
            items: Vec::new(),
            last: None,
            remaining: 0,
        };
        for (key, object) in objects.range((begin, Unbounded)) {
            if !selector.matches(object) {
                continue;
            }
            if page.items.len() < limit {
                page.items.push(object);
                page.last = Some(key.clone());
            } else {
                page.remaining += 1;
            }
        }
        page
    }
}

fn token(revision: Option<u64>, after: &Key) -> String {
    let revision = revision
        .and_then(|revision| i64::try_from(revision).ok())
        .unwrap_or(INCONSISTENT);
    let (namespace, name) = after;
    let start = if namespace.is_empty() {
        format!("{name}\0")
    } else {
        format!("{namespace}/{name}\0")
    };
    URL_SAFE_NO_PAD.encode(json!({"v": TOKEN_VERSION, "rv": revision, "start": start}).to_string())
}

fn parse_token(text: &str) -> Outcome<Continue> {
    let refuse = |why: &str| {
        Failure::bad_request(format!(
            "invalid continue token: continue key is not valid: {why}"
        ))
    };
    let bytes = URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|error| refuse(&error.to_string()))?;
    let token: Value =
        serde_json::from_slice(&bytes).map_err(|error| refuse(&error.to_string()))?;
    if token.get("v") != Some(&TOKEN_VERSION.into()) {
        return Err(refuse("server does not recognize this encoded version"));
    }
    let revision = token
        .get("rv")
        .and_then(Value::as_i64)
        .ok_or_else(|| refuse("it has no revision"))?;
    let start = token
        .get("start")
        .and_then(Value::as_str)
        .and_then(|start| start.strip_suffix('\0'))
        .ok_or_else(|| refuse("it has no start"))?;
    let (namespace, name) = start.split_once('/').unwrap_or(("", start));
    Ok(Continue {
        revision: u64::try_from(revision).ok(),
        after: (namespace.into(), name.into()),
    })
}

fn expired(after: &Key) -> Box<Failure> {
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
    let mut failure = Failure::new(410, Reason::Expired, message);
    failure.continue_token = Some(token(None, after));
    failure
}
