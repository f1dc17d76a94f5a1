//! The probes `/livez`, `/readyz` and `/cachez`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use freshet_proxy::Shared;

/// Whether statements are answered, cached or not: a broken change stream takes no instance out of its load balancer.
pub(super) async fn readyz(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    if shared.switches.is_draining() { not_available("draining") } else { (StatusCode::OK, "ready\n".to_owned()) }
}

/// Whether answers come from the cache.
pub(super) async fn cachez(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    if shared.switches.is_draining() {
        return not_available("draining");
    }
    match shared.trouble() {
        None => (StatusCode::OK, "ready\n".to_owned()),
        Some(why) => not_available(&format!("not caching: {why}")),
    }
}

fn not_available(why: &str) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))
}
