//! Server-side apply, strategic merge and JSON merge patch over serde_json values. Pure, standalone.
