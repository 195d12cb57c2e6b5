use clap::Parser;

use super::*;
use crate::cli::{Cli, Command};
use crate::load::{ConnectPace, Shape};
use crate::mqtt::QoS;

fn plan(arguments: &[&str]) -> Result<Plan, String> {
    let cli = Cli::try_parse_from(["troupemq", "bench"].iter().chain(arguments)).map_err(|error| error.to_string())?;
    let Command::Bench(arguments) = cli.command else { return Err("another command".into()) };
    let plan = prepare(&arguments.scene).1.map_err(|error| error.to_string())?;
    plan.check().map_err(|error| error.to_string()).map(|()| plan)
}

#[test]
fn every_scene_can_be_had_without_options() {
    for scene in ["connect", "pubsub", "fanout", "fanin", "shared", "retained", "offline", "failover"] {
        let plan = plan(&[scene]).unwrap();
        assert_eq!(plan.name(), scene);
        assert_eq!(plan.target.servers, ["127.0.0.1"]);
    }
}

#[test]
fn options_become_the_plan() {
    let of = |arguments: &[&str]| plan(arguments).unwrap();
    let Scene::Connect(connect) = of(&["connect", "--burst", "--session-expiry", "60", "--hold", "500ms", "--keep"]).scene else {
        panic!()
    };
    assert_eq!(
        (connect.pace, connect.session_expiry_s, connect.hold, connect.keep),
        (ConnectPace::Burst, 60, Duration::from_millis(500), true)
    );
    let Scene::Connect(connect) = of(&["connect", "--rate", "0.5"]).scene else { panic!() };
    assert_eq!((connect.pace, connect.retry), (ConnectPace::Rate(0.5), None));
    let Scene::Connect(connect) = of(&["connect", "--retry", "500ms"]).scene else { panic!() };
    assert_eq!(connect.retry, Some(Duration::from_millis(500)));
    let Scene::Flow(flow) = of(&["shared", "--members", "3", "--qos", "2", "--rate", "5000"]).scene else { panic!() };
    assert_eq!(
        (flow.shape, flow.qos, flow.rate, flow.in_flight),
        (Shape::Shared { publishers: 100, members: 3 }, QoS::ExactlyOnce, Some(5000.0), 1000)
    );
    let Scene::Flow(flow) = of(&["failover", "a,b", "c", "--warm-up", "1m"]).scene else { panic!() };
    assert!(flow.failover && flow.session_expiry_s == 600 && flow.in_flight == 16 && flow.warm_up == Duration::from_secs(60));
    let target = of(&["failover", "a,b", "c"]).target;
    assert_eq!((target.servers, target.keep_alive), (vec!["a".to_owned(), "b".to_owned(), "c".to_owned()], 10));
    let target =
        of(&["pubsub", "--tls", "--insecure", "--ws", "mqtt", "--mqtt", "3.1.1", "--source", "127.0.0.1..127.0.0.3"]).target;
    assert_eq!((target.websocket.as_deref(), target.version, target.sources.len()), (Some("/mqtt"), ProtocolVersion::V3_1_1, 3));
    assert!(target.tls.unwrap().insecure);
}

#[test]
fn what_does_not_go_together_is_refused_with_a_hint() {
    let table: [(&[&str], &str); 15] = [
        (&["connect", "--burst", "--rate", "5"], "cannot be used with"),
        (&["connect", "--clean", "--session-expiry", "5"], "cannot be used with"),
        (&["connect", "--keep"], "--session-expiry"),
        (&["connect", "--hold", "5x"], "ms, s, m or h"),
        (&["connect", "--source", "nowhere"], "no IP address"),
        (&["pubsub", "--payload", "8"], "24 bytes or more"),
        (&["pubsub", "--qos", "3"], "0, 1 or 2"),
        (&["pubsub", "--mqtt", "4"], "5 or 3.1.1"),
        (&["pubsub", "--rate", "0"], "more than 0"),
        (&["pubsub", "--ca-file", "x"], "--tls"),
        (&["pubsub", "--tls", "--cert", "x"], "--key"),
        (&["pubsub", "--rate", "1", "--until-received"], "cannot be used with"),
        (&["pubsub", "--interval", "1"], "10 to 3600000"),
        (&["offline", "--qos", "0"], "--qos 1 or 2"),
        (&["failover", "--clean"], "--session-expiry"),
    ];
    for (arguments, says) in table {
        let error = plan(arguments).unwrap_err();
        assert!(error.contains(says), "{arguments:?}: {error}");
    }
}

#[test]
fn a_scene_that_cannot_begin_says_why() {
    let told = |arguments: &[&str]| {
        let cli = Cli::try_parse_from(["troupemq", "bench"].iter().chain(arguments)).unwrap();
        let Command::Bench(arguments) = cli.command else { panic!() };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status = bench(&arguments.scene, &mut out, &mut err);
        (status, String::from_utf8([out, err].concat()).unwrap())
    };
    let (status, said) = told(&["connect", "127.0.0.1:x", "-q"]);
    assert!(status == 2 && said.contains("HOST:PORT"), "{status} {said}");
    let (status, said) = told(&["connect", "--json", "/nowhere/x.json", "-q"]);
    assert!(status == 2 && said.contains("/nowhere/x.json"), "{status} {said}");
    let (status, said) = told(&["connect", "--tls", "--ca-file", "/nowhere/ca.pem", "-q"]);
    assert!(status == 2 && said.contains("/nowhere/ca.pem"), "{status} {said}");
    // A port that nobody listens on.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (status, said) = told(&["pubsub", &format!("127.0.0.1:{port}"), "--pairs", "1", "-q"]);
    assert!(status == 1 && said.contains("refused") && said.contains(&port.to_string()), "{status} {said}");
}
