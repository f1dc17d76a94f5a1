//! The web endpoints: metrics, probes, and the figures as JSON.

mod api;
mod metrics;
mod probes;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use axum::routing::get;
use freshet_proxy::Shared;

/// Binds the address and serves in the background; returns the bound address.
pub(crate) async fn bind(address: SocketAddr, shared: Arc<Shared>) -> Result<SocketAddr> {
    let listener =
        tokio::net::TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address} (--http)"))?;
    let bound = listener.local_addr()?;
    let router = Router::new()
        .route("/metrics", get(metrics::metrics).with_state(Arc::new(metrics::registry(&shared))))
        .route("/api/queries", get(api::queries).with_state(shared.clone()))
        .route("/api/advice", get(api::advice).with_state(shared.clone()))
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(probes::readyz).with_state(shared.clone()))
        .route("/cachez", get(probes::cachez).with_state(shared.clone()))
        .route("/health", get(probes::cachez).with_state(shared));
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the web endpoints have ended");
        }
    });
    Ok(bound)
}
