//! The HTTP server: `/metrics`, the health API and the status page at `/`, or of these the metrics or health alone. It changes nothing and
//! tells no secrets, but knows no users either: the configuration decides which address it listens on.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::{Handler, ServerHandle};
use actix_web::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, X_CONTENT_TYPE_OPTIONS};
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{FromRequest, HttpRequest, HttpResponse, HttpServer, Resource, Responder};

use super::health::HealthSource;
use super::{health_api, status_page};
use crate::telemetry::metrics::CONTENT_TYPE as METRICS_CONTENT_TYPE;
use crate::telemetry::{Metrics, Sampled};

/// What the handlers know.
pub(super) struct App {
    pub(super) metrics: Arc<Metrics>,
    pub(super) sampled: Arc<dyn Sampled + Send + Sync>,
    pub(super) health: Arc<dyn HealthSource>,
}

/// What a listener serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Surface {
    All,
    /// The health API alone.
    Health,
    /// Metrics alone, at a path and, as HiveMQ's charts and everybody else expect them, at `/` and `/metrics` (spec/hivemq.md 5.3).
    Metrics {
        path: String,
    },
}

/// Why the HTTP server does not run; the operator's to mend.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error(
        "cannot listen for HTTP on address {} port {}, as <{element}> says: {source}; give it another port, or stop what uses this one",
        address.ip(), address.port()
    )]
    Bind {
        /// Of `config.xml`.
        element: &'static str,
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
}

/// A running HTTP server. Dropping the handle lets it run on.
#[derive(Debug)]
pub struct HttpHandle {
    /// Where it listens; tells the port where 0 was asked for.
    pub local_addr: SocketAddr,
    pub surface: Surface,
    server: ServerHandle,
}

impl HttpHandle {
    /// Closes the listener, finishes the requests that are being answered (at most a second), ends the server's thread.
    pub async fn stop(&self) {
        self.server.stop(true).await;
    }
}

/// Longest time a client may take to send its request head.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const SHUTDOWN_TIMEOUT_S: u64 = 1;
const BACKLOG: u32 = 1024;
const CONNECTIONS_MAX: usize = 4096;

/// Starts a server on one address, on a thread of its own, so that a scrape never waits for clients nor they for it. Must be called
/// inside an actix `System`.
#[allow(clippy::unused_async, reason = "being async it cannot be called outside a runtime, where it would panic")]
pub async fn serve(
    addr: SocketAddr,
    element: &'static str,
    surface: Surface,
    metrics: Arc<Metrics>,
    sampled: Arc<dyn Sampled + Send + Sync>,
    health: Arc<dyn HealthSource>,
) -> Result<HttpHandle, HttpError> {
    let failed = |source| HttpError::Bind { element, address: addr, source };
    let app = Data::new(App { metrics, sampled, health });
    let served = surface.clone();
    let server =
        HttpServer::new(move || actix_web::App::new().app_data(app.clone()).configure(|routes| configure(routes, &served)))
            .workers(1)
            .backlog(BACKLOG)
            .max_connections(CONNECTIONS_MAX)
            .client_request_timeout(REQUEST_TIMEOUT)
            .shutdown_timeout(SHUTDOWN_TIMEOUT_S)
            .disable_signals()
            .bind(addr)
            .map_err(failed)?;
    let local_addr = server.addrs().first().copied().unwrap_or(addr);
    let server = server.run();
    let handle = server.handle();
    actix_web::rt::spawn(async move {
        if let Err(error) = server.await {
            tracing::error!(%local_addr, %error, "http server ended");
        }
    });
    Ok(HttpHandle { local_addr, surface, server: handle })
}

/// The routes of a surface; what is not among them is 404, other methods are 405.
pub(super) fn configure(routes: &mut ServiceConfig, surface: &Surface) {
    match surface {
        Surface::All => {
            routes.service(read_only("/metrics", metrics)).service(read_only("/", root)).configure(health_api::configure);
        }
        Surface::Health => health_api::configure(routes),
        Surface::Metrics { path } => {
            for path in ["/", "/metrics"].into_iter().chain(Some(path.as_str()).filter(|path| !["/", "/metrics"].contains(path)))
            {
                routes.service(read_only(path, metrics));
            }
        }
    }
}

/// A resource that answers GET and HEAD.
pub(super) fn read_only<F, Args>(path: &str, handler: F) -> Resource
where
    F: Handler<Args> + Clone,
    Args: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    web::resource(path.to_owned()).route(web::get().to(handler.clone())).route(web::head().to(handler))
}

async fn metrics(app: Data<App>) -> HttpResponse {
    HttpResponse::Ok().insert_header((CONTENT_TYPE, METRICS_CONTENT_TYPE)).body(app.metrics.scrape(app.sampled.as_ref()))
}

/// The status page for browsers; for everybody else metrics, because HiveMQ's charts scrape `/` (spec/hivemq.md 5.3).
async fn root(request: HttpRequest, app: Data<App>) -> HttpResponse {
    if !asks_for_html(request.headers()) {
        return metrics(app).await;
    }
    app.sampled.sample(&app.metrics);
    HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((CACHE_CONTROL, "no-store"))
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"))
        .body(status_page::render(&app.metrics, app.health.as_ref()))
}

fn asks_for_html(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).any(|accept| accept.to_str().is_ok_and(|accept| accept.contains("text/html")))
}

#[cfg(test)]
#[path = "http_test.rs"]
mod tests;
