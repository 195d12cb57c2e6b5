//! The health API under `/api/v1/health` (spec/hivemq.md 6.5). HiveMQ's JSON is not known; this one has its statuses and codes, and
//! tells what a node that is not ready waits for and since when.

use std::collections::BTreeMap;

use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, HeaderValue};
use actix_web::web::{Data, Path, ServiceConfig};
use actix_web::{HttpResponse, Responder};
use serde::Serialize;

use super::health::{self, ClusterHealth, HealthSource, LoadHealth, MqttHealth, Status, Waiting};
use super::http::{App, read_only};

/// Adds the routes.
pub(super) fn configure(routes: &mut ServiceConfig) {
    routes
        .service(read_only("/api/v1/health", overall))
        .service(read_only("/api/v1/health/", overall))
        .service(read_only("/api/v1/health/liveness", liveness))
        .service(read_only("/api/v1/health/readiness", overall))
        .service(read_only("/api/v1/health/{component}", component));
}

/// The component of how much the node has to do.
const OVERLOAD: &str = "overload-protection";

/// A component, or the node as a whole.
#[derive(Serialize)]
struct Component<D> {
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<D>,
    #[serde(skip_serializing_if = "Option::is_none")]
    components: Option<BTreeMap<String, serde_json::Value>>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct NodeDetails {
    /// The node stops, or parts with its clients.
    draining: bool,
    /// Wall clock, ms since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    draining_since_ms: Option<u64>,
}

/// What a component waits for.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct WaitingDetails<'a> {
    waiting_for: &'a str,
    /// Wall clock, ms since the epoch.
    waiting_since_ms: u64,
}

impl<'a> WaitingDetails<'a> {
    fn of(waiting: &'a Waiting) -> Self {
        Self { waiting_for: &waiting.what, waiting_since_ms: waiting.since_ms }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct LoadDetails {
    /// 0 to 9.
    level: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    /// Wall clock, ms since the epoch.
    since_ms: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterDetails<'a> {
    node: &'a str,
    cluster_id: Option<&'a str>,
    /// Nodes that are alive.
    cluster_size: usize,
    cluster_nodes: Vec<ClusterNode<'a>>,
    groups_without_leader: Vec<&'a str>,
    #[serde(flatten)]
    waiting: Option<WaitingDetails<'a>>,
}

#[derive(Serialize)]
struct ClusterNode<'a> {
    name: &'a str,
    address: &'a str,
    alive: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ListenerDetails<'a> {
    port: u16,
    bind_address: &'a str,
    is_running: bool,
}

/// The whole and readiness are one: nothing beyond the cluster and the listeners decides whether clients may come.
async fn overall(app: Data<App>) -> impl Responder {
    let source = app.health.as_ref();
    let draining_since_ms = source.draining_since_ms();
    let parts = [
        ("cluster", cluster_component(&source.cluster())),
        ("mqtt", mqtt_component(&source.mqtt())),
        (OVERLOAD, load_component(&source.load())),
    ];
    let whole = Component {
        status: readiness(source),
        details: Some(NodeDetails { draining: draining_since_ms.is_some(), draining_since_ms }),
        components: Some(parts.into_iter().map(|(name, part)| (name.to_owned(), part)).collect()),
    };
    answer(whole.status, &whole)
}

/// UP as long as the process serves HTTP: a node that waits for its cluster must not be restarted for that.
async fn liveness() -> impl Responder {
    answer(Status::Up, &Component::<()> { status: Status::Up, details: None, components: None })
}

async fn component(app: Data<App>, name: Path<String>) -> impl Responder {
    match name.as_str() {
        "cluster" => {
            let cluster = app.health.cluster();
            answer(health::cluster_status(&cluster), &cluster_component(&cluster))
        }
        "mqtt" => {
            let mqtt = app.health.mqtt();
            answer(health::mqtt_status(&mqtt), &mqtt_component(&mqtt))
        }
        OVERLOAD => answer(Status::Up, &load_component(&app.health.load())),
        _ => HttpResponse::NotFound().finish(),
    }
}

/// Whether the node is to be given clients.
pub(super) fn readiness(source: &dyn HealthSource) -> Status {
    let draining = source.draining_since_ms().is_some();
    health::cluster_status(&source.cluster()).and(health::mqtt_status(&source.mqtt())).and(Status::of(!draining))
}

fn cluster_component(cluster: &ClusterHealth) -> serde_json::Value {
    let details = ClusterDetails {
        node: &cluster.node_name,
        cluster_id: cluster.cluster_id.as_deref(),
        cluster_size: cluster.nodes.iter().filter(|node| node.alive).count(),
        cluster_nodes: cluster
            .nodes
            .iter()
            .map(|node| ClusterNode { name: &node.name, address: &node.address, alive: node.alive })
            .collect(),
        groups_without_leader: cluster
            .groups
            .iter()
            .filter(|group| group.leader.is_none())
            .map(|group| group.name.as_str())
            .collect(),
        waiting: cluster.waiting.as_ref().map(WaitingDetails::of),
    };
    value(&Component { status: health::cluster_status(cluster), details: Some(details), components: None })
}

fn mqtt_component(mqtt: &MqttHealth) -> serde_json::Value {
    let parts = mqtt.listeners.iter().map(|listener| {
        let details = ListenerDetails { port: listener.port, bind_address: &listener.bind_address, is_running: listener.running };
        let part = Component { status: Status::of(listener.running), details: Some(details), components: None };
        (listener.name.clone(), value(&part))
    });
    let details = mqtt.waiting.as_ref().map(WaitingDetails::of);
    value(&Component { status: health::mqtt_status(mqtt), details, components: Some(parts.collect()) })
}

/// UP whatever the level is: see [`LoadHealth`].
fn load_component(load: &LoadHealth) -> serde_json::Value {
    let LoadHealth { level, cause, since_ms } = load.clone();
    value(&Component { status: Status::Up, details: Some(LoadDetails { level, cause, since_ms }), components: None })
}

/// These types always make JSON; null is what would show if not.
fn value(part: &impl Serialize) -> serde_json::Value {
    serde_json::to_value(part).unwrap_or_default()
}

fn answer(status: Status, body: &impl Serialize) -> HttpResponse {
    let code = match status {
        Status::Up => StatusCode::OK,
        Status::Down => StatusCode::SERVICE_UNAVAILABLE,
    };
    HttpResponse::build(code).insert_header((CACHE_CONTROL, HeaderValue::from_static("no-store"))).json(body)
}
