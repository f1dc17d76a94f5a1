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

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use axum::routing::get;
use axum::{Router, middleware};
use freshet_proxy::{Databases, Inherited};
use tokio::net::TcpListener;

use access::Access;
pub(crate) use args::WebArgs;
use connections::Connections;
pub(crate) use metrics::figures;
use sampler::Sampler;
use status::Status;

/// Reads the files that the options name, to find faults.
pub(crate) fn try_out(args: &WebArgs) -> Result<()> {
    Access::load(args).map(drop)
}

/// The endpoints, while the program runs.
pub(crate) struct Web {
    listener: Arc<TcpListener>,
    /// As it was configured.
    address: SocketAddr,
    access: Arc<Access>,
    serving: OnceLock<(Connections, Arc<Sampler>)>,
}

impl Web {
    /// Takes the inherited socket of the address, or binds it, if one is set.
    pub(crate) fn bind(args: &WebArgs, inherited: &mut Inherited) -> Result<Option<Self>> {
        let Some(address) = args.http else { return Ok(None) };
        let access = Arc::new(Access::load(args)?);
        let listener: std::net::TcpListener = match inherited.take(&name(address)) {
            Some(socket) => socket.into(),
            None => {
                std::net::TcpListener::bind(address).with_context(|| format!("cannot listen on {address} (--http)"))?
            }
        };
        listener.set_nonblocking(true)?;
        let listener = Arc::new(TcpListener::from_std(listener)?);
        Ok(Some(Self { listener, address, access, serving: OnceLock::new() }))
    }

    /// The bound address.
    pub(crate) fn bound(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves in the background.
    pub(crate) fn run(&self, args: &WebArgs, databases: Arc<Databases>) {
        let router = router(&databases);
        let status = Arc::new(Status::new(databases, args.price.clone()));
        let sampler = status.sampler.clone();
        tokio::spawn(sampler.clone().run());
        let guard = middleware::from_fn_with_state(self.access.clone(), access::guard);
        let router = router.merge(dashboard(status)).layer(guard);
        tokio::spawn(self.access.clone().watch());
        let connections = Connections::serve(self.listener.clone(), self.access.clone(), router);
        self.serving.get_or_init(|| (connections, sampler));
    }

    /// A second descriptor of the socket, for another process, and the socket's name there.
    pub(crate) fn duplicate(&self) -> io::Result<(String, OwnedFd)> {
        Ok((name(self.address), self.listener.as_fd().try_clone_to_owned()?))
    }

    /// Accepts no connections any more, and ends the open ones after their answers.
    pub(crate) fn stop(&self) {
        if let Some((connections, sampler)) = self.serving.get() {
            connections.end();
            sampler.dismiss();
        }
    }
}

/// The name of the socket among those that another process takes over.
fn name(address: SocketAddr) -> String {
    format!("http {address}")
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
