//! The probes: plain HTTP, no data, the reason as JSON. Readiness is what the last decision said; liveness is that somebody answers.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use geodb_ha::environment::{LIVE_PATH, READY_PATH};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// What the instance says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    pub ready: bool,
    pub reason: String,
    pub message: String,
    pub incarnation: Option<String>,
}

impl Health {
    /// Before the first decision.
    pub fn starting() -> Self {
        Self {
            ready: false,
            reason: "AgentStarting".into(),
            message: "the agent is starting".into(),
            incarnation: None,
        }
    }
}

/// Answers probes until the program ends.
pub async fn serve(listener: TcpListener, health: watch::Receiver<Health>) {
    let router = Router::new()
        .route(LIVE_PATH, get(live))
        .route(READY_PATH, get(ready))
        .with_state(health);
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "the health endpoint ended");
    }
}

async fn live(State(health): State<watch::Receiver<Health>>) -> Json<Health> {
    Json(health.borrow().clone())
}

async fn ready(State(health): State<watch::Receiver<Health>>) -> (StatusCode, Json<Health>) {
    let health = health.borrow().clone();
    let status = if health.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(health))
}
