//! The web endpoints: dashboard, figures as JSON, metrics and probes.

mod access;
mod api;
mod args;
mod asked;
mod connections;
mod health;
mod metrics;
mod page;
mod probes;
mod sampler;
mod status;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::routing::get;
use axum::{Router, middleware};
use freshet_proxy::Databases;

use access::Access;
pub(crate) use args::WebArgs;
use connections::Connections;
pub(crate) use metrics::figures;
use status::Status;

/// Reads the files that the options name, to find faults.
pub(crate) fn try_out(args: &WebArgs) -> Result<()> {
    Access::load(args).map(drop)
}

/// Binds the address, if one is set, and serves in the background. Returns the bound address.
pub(crate) async fn bind(args: &WebArgs, databases: Arc<Databases>) -> Result<Option<SocketAddr>> {
    let Some(address) = args.http else { return Ok(None) };
    let access = Arc::new(Access::load(args)?);
    let listener =
        tokio::net::TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address} (--http)"))?;
    let bound = listener.local_addr()?;
    let router = router(&databases);
    let status = Arc::new(Status::new(databases, args.price.clone()));
    tokio::spawn(status.sampler.clone().run());
    let router = router.merge(dashboard(status)).layer(middleware::from_fn_with_state(access.clone(), access::guard));
    tokio::spawn(access.clone().watch());
    let connections = Connections::of(listener, bound, access);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(connections, router).await {
            tracing::error!(%error, "the web endpoints have ended");
        }
    });
    Ok(Some(bound))
}

fn router(databases: &Arc<Databases>) -> Router {
    Router::new()
        .route("/metrics", get(metrics::metrics).with_state(Arc::new(metrics::registry(databases))))
        .route("/api/queries", get(api::queries).with_state(databases.clone()))
        .route("/api/advice", get(api::advice).with_state(databases.clone()))
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(probes::readyz).with_state(databases.clone()))
        .route("/cachez", get(probes::cachez).with_state(databases.clone()))
        .route("/health", get(probes::cachez).with_state(databases.clone()))
}

/// The page and the endpoints that it reads.
fn dashboard(status: Arc<Status>) -> Router {
    let api = Router::new()
        .route("/api/status", get(status::status))
        .route("/api/events", get(status::events))
        .route("/api/memory", get(status::memory_figures))
        .route("/api/sessions", get(status::sessions))
        .route("/api/streams", get(status::streams))
        .with_state(status);
    page::FILES.iter().fold(api, |router, file| router.route(file.path, get(|| async { file.answer() })))
}
