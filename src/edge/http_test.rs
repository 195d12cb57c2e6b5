use std::net::{Ipv4Addr, TcpListener};

use actix_web::body::MessageBody;
use actix_web::dev::ServiceResponse;
use actix_web::http::{Method, StatusCode};
use actix_web::test::{self, TestRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::edge::fixture::Fixture;
use crate::edge::{LoadHealth, MqttHealth, Waiting};

/// Sets a gauge when it is asked, so that tests see that it was.
struct Nodes;

impl Sampled for Nodes {
    fn sample(&self, metrics: &Metrics) {
        metrics.hivemq.cluster_nodes.set(3);
    }
}

fn app(health: Fixture) -> Data<App> {
    Data::new(App { metrics: Arc::new(Metrics::new().unwrap()), sampled: Arc::new(Nodes), health: Arc::new(health) })
}

async fn call(health: Fixture, request: TestRequest) -> ServiceResponse<impl MessageBody> {
    call_on(&Surface::All, health, request).await
}

async fn call_on(surface: &Surface, health: Fixture, request: TestRequest) -> ServiceResponse<impl MessageBody> {
    let routes = |routes: &mut ServiceConfig| configure(routes, surface);
    let service = test::init_service(actix_web::App::new().app_data(app(health)).configure(routes)).await;
    test::call_service(&service, request.to_request()).await
}

async fn get_json(health: Fixture, path: &str) -> (StatusCode, serde_json::Value) {
    let response = call(health, TestRequest::get().uri(path)).await;
    (response.status(), test::read_body_json(response).await)
}

async fn text(response: ServiceResponse<impl MessageBody>) -> String {
    String::from_utf8(test::read_body(response).await.to_vec()).unwrap()
}

fn header<'a>(response: &'a ServiceResponse<impl MessageBody>, name: &str) -> &'a str {
    response.headers().get(name).unwrap().to_str().unwrap()
}

#[actix_web::test]
async fn metrics_are_sampled_and_sent_as_text_0_0_4() {
    let response = call(Fixture::ready(), TestRequest::get().uri("/metrics")).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(header(&response, "content-type"), "text/plain; version=0.0.4; charset=utf-8");
    assert!(text(response).await.contains("\ncom_hivemq_cluster_nodes_count 3\n"));
}

#[actix_web::test]
async fn the_root_is_a_page_for_browsers_and_metrics_for_scrapers() {
    let scrape = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    let response = call(Fixture::ready(), TestRequest::get().uri("/").insert_header((ACCEPT, scrape))).await;
    assert!(text(response).await.starts_with("# HELP"));

    let browse = "text/html,application/xhtml+xml,*/*;q=0.8";
    let response = call(Fixture::ready(), TestRequest::get().uri("/").insert_header((ACCEPT, browse))).await;
    assert_eq!(header(&response, "content-type"), "text/html; charset=utf-8");
    assert!(header(&response, "content-security-policy").starts_with("default-src 'none';"));
    assert!(text(response).await.starts_with("<!DOCTYPE html>"));
}

#[actix_web::test]
async fn statuses_and_codes_follow_what_is_ready() {
    let unbound = || {
        let mut fixture = Fixture::ready();
        fixture.mqtt.listeners[0].running = false;
        fixture
    };
    let without_listener = || Fixture { mqtt: MqttHealth::default(), ..Fixture::ready() };
    let undeclared = || {
        let mut fixture = Fixture::ready();
        fixture.mqtt.waiting = Some(Waiting { what: "what it declares".to_owned(), since_ms: 7 });
        fixture
    };
    let overloaded = || Fixture { load: LoadHealth { level: 9, cause: Some("lag"), since_ms: 1 }, ..Fixture::ready() };
    // fixture, then whether the whole, readiness, cluster and mqtt are UP
    let table = [
        (Fixture::ready(), [true, true, true, true]),
        (Fixture::waiting(), [false, false, false, true]),
        (unbound(), [false, false, true, false]),
        (without_listener(), [false, false, true, false]),
        (undeclared(), [false, false, true, false]),
        // Fewer nodes would have more to do.
        (overloaded(), [true, true, true, true]),
        (Fixture::draining(), [false, false, true, true]),
    ];
    let paths = ["/api/v1/health/", "/api/v1/health/readiness", "/api/v1/health/cluster", "/api/v1/health/mqtt"];
    for (row, (fixture, expected)) in table.into_iter().enumerate() {
        for (path, up) in paths.into_iter().zip(expected) {
            let (code, body) = get_json(fixture.clone(), path).await;
            assert_eq!(code, if up { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, "row {row} {path}");
            assert_eq!(body["status"], if up { "UP" } else { "DOWN" }, "row {row} {path}");
        }
        // A node that is not ready is alive all the same.
        let (code, body) = get_json(fixture, "/api/v1/health/liveness").await;
        assert_eq!((code, body), (StatusCode::OK, serde_json::json!({ "status": "UP" })), "row {row}");
    }
}

#[actix_web::test]
async fn readiness_tells_the_components_and_what_is_awaited_since_when() {
    let (_, body) = get_json(Fixture::waiting(), "/api/v1/health/readiness").await;
    let node = |name: &str, alive| serde_json::json!({ "name": name, "address": format!("{name}:7800"), "alive": alive });
    let expected = serde_json::json!({
        "status": "DOWN",
        "details": { "draining": false },
        "components": {
            "cluster": {
                "status": "DOWN",
                "details": {
                    "node": "node-1",
                    "cluster-id": "c-1",
                    "cluster-size": 2,
                    "cluster-nodes": [node("node-1", true), node("node-2", true), node("node-3", false)],
                    "groups-without-leader": ["0"],
                    "waiting-for": "a majority of 3 nodes",
                    "waiting-since-ms": 1_756_377_600_000_u64,
                },
            },
            "mqtt": {
                "status": "UP",
                "components": {
                    "tcp-listener-1883": {
                        "status": "UP",
                        "details": { "port": 1883, "bind-address": "0.0.0.0", "is-running": true },
                    },
                },
            },
            "overload-protection": { "status": "UP", "details": { "level": 0, "since-ms": 1_756_377_500_000_u64 } },
        },
    });
    assert_eq!(body, expected);
    assert_eq!(get_json(Fixture::waiting(), "/api/v1/health").await.1, expected);
    assert_eq!(get_json(Fixture::waiting(), "/api/v1/health/cluster").await.1, expected["components"]["cluster"]);
    assert_eq!(get_json(Fixture::waiting(), "/api/v1/health/mqtt").await.1, expected["components"]["mqtt"]);
}

#[actix_web::test]
async fn each_component_tells_since_when_it_is_what_it_is() {
    let mut fixture = Fixture::draining();
    fixture.mqtt.waiting = Some(Waiting { what: "its listeners to be bound".to_owned(), since_ms: 7 });
    fixture.load = LoadHealth { level: 3, cause: Some("lag of an event loop"), since_ms: 8 };
    let body = get_json(fixture.clone(), "/api/v1/health").await.1;
    assert_eq!(body["details"], serde_json::json!({ "draining": true, "draining-since-ms": 1_756_377_700_000_u64 }));
    let mqtt = serde_json::json!({ "waiting-for": "its listeners to be bound", "waiting-since-ms": 7 });
    assert_eq!(body["components"]["mqtt"]["details"], mqtt);
    let (code, load) = get_json(fixture.clone(), "/api/v1/health/overload-protection").await;
    let expected = serde_json::json!({
        "status": "UP",
        "details": { "level": 3, "cause": "lag of an event loop", "since-ms": 8 },
    });
    assert_eq!((code, load), (StatusCode::OK, expected));
    let browser = TestRequest::get().uri("/").insert_header((ACCEPT, "text/html"));
    let page = text(call(fixture, browser).await).await;
    assert!(page.contains("Overload level 3: lag of an event loop, since 1970-01-01 00:00:00 UTC"), "{page}");
}

#[actix_web::test]
async fn nothing_is_awaited_where_the_node_is_ready() {
    let (_, body) = get_json(Fixture::ready(), "/api/v1/health/cluster").await;
    let details = body["details"].as_object().unwrap();
    assert!(!details.contains_key("waiting-for") && !details.contains_key("waiting-since-ms"));
    assert_eq!(details["groups-without-leader"], serde_json::json!([]));
}

#[actix_web::test]
async fn unknown_paths_are_404_and_other_methods_405() {
    let table = [
        (Method::GET, "/api/v1/health/kafka", StatusCode::NOT_FOUND),
        (Method::GET, "/api/v1/health/cluster/x", StatusCode::NOT_FOUND),
        (Method::GET, "/api/v1", StatusCode::NOT_FOUND),
        (Method::GET, "/../etc/passwd", StatusCode::NOT_FOUND),
        (Method::POST, "/metrics", StatusCode::METHOD_NOT_ALLOWED),
        (Method::DELETE, "/api/v1/health/readiness", StatusCode::METHOD_NOT_ALLOWED),
        (Method::HEAD, "/api/v1/health/readiness", StatusCode::OK),
        (Method::HEAD, "/metrics", StatusCode::OK),
    ];
    for (method, path, code) in table {
        let response = call(Fixture::ready(), TestRequest::default().method(method.clone()).uri(path)).await;
        assert_eq!(response.status(), code, "{method} {path}");
    }
}

#[actix_web::test]
async fn a_listener_for_metrics_or_health_alone_serves_nothing_else() {
    let metrics = |path: &str| Surface::Metrics { path: path.to_owned() };
    let (html, plain) = ("text/html", "*/*");
    let table = [
        (metrics("/metrics"), "/metrics", plain, Some("# HELP")),
        (metrics("/metrics"), "/", plain, Some("# HELP")),
        // HiveMQ's extension has no page either.
        (metrics("/metrics"), "/", html, Some("# HELP")),
        (metrics("/metrics"), "/broker", plain, None),
        (metrics("/broker"), "/broker", plain, Some("# HELP")),
        (metrics("/broker"), "/metrics", plain, Some("# HELP")),
        (metrics("/"), "/", plain, Some("# HELP")),
        (metrics("/metrics"), "/api/v1/health/liveness", plain, None),
        (Surface::Health, "/api/v1/health/liveness", plain, Some("{\"status\":\"UP\"}")),
        (Surface::Health, "/api/v1/health/", plain, Some("{\"status\":\"UP\"")),
        (Surface::Health, "/metrics", plain, None),
        (Surface::Health, "/", html, None),
    ];
    for (surface, path, accept, expected) in table {
        let request = TestRequest::get().uri(path).insert_header((ACCEPT, accept));
        let response = call_on(&surface, Fixture::ready(), request).await;
        let code = if expected.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
        assert_eq!(response.status(), code, "{surface:?} {path}");
        assert!(text(response).await.starts_with(expected.unwrap_or("")), "{surface:?} {path}");
    }
}

#[actix_web::test]
async fn health_is_never_cached() {
    let response = call(Fixture::ready(), TestRequest::get().uri("/api/v1/health/readiness")).await;
    assert_eq!(header(&response, "cache-control"), "no-store");
    assert_eq!(header(&response, "content-type"), "application/json");
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

async fn serve_on(port: u16) -> Result<HttpHandle, HttpError> {
    serve(loopback(port), "http", Surface::All, Arc::new(Metrics::new().unwrap()), Arc::new(Nodes), Arc::new(Fixture::ready()))
        .await
}

#[actix_web::test]
async fn a_server_on_a_free_port_answers_until_it_is_stopped() {
    let server = serve_on(0).await.unwrap();
    let mut socket = TcpStream::connect(server.local_addr).await.unwrap();
    socket.write_all(b"GET /api/v1/health/liveness HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("{\"status\":\"UP\"}"), "{answer}");
    server.stop().await;
    assert!(TcpStream::connect(server.local_addr).await.is_err());
}

#[actix_web::test]
async fn an_address_in_use_is_named() {
    let taken = TcpListener::bind(loopback(0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = serve_on(port).await.unwrap_err();
    let wanted = format!("cannot listen for HTTP on address 127.0.0.1 port {port}, as <http> says: ");
    assert!(error.to_string().starts_with(&wanted) && error.to_string().contains("another port"), "{error}");
    assert!(std::error::Error::source(&error).is_some());
}
