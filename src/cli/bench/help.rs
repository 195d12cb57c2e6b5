//! Examples for each scene.

pub const BENCH: &str = "\
Examples:
  troupemq bench connect --clients 10000 --source 127.0.0.1..127.0.0.4
  troupemq bench pubsub broker.example:1883 --pairs 100 --qos 1 --duration 30
  troupemq bench pubsub --rate 5000 --json result.json

Any MQTT server will do. Latencies begin when a message was to be sent, so that a server that stops shows; what is measured begins after a
warm-up. Ctrl-C ends a scene with what there is so far. `troupemq bench SCENE --help` has the options of a scene.

Exit status: 0 fine, 1 acknowledged messages were lost, or messages doubled (QoS 0 and 2) or out of order, or the scene failed, 2 the command
line is wrong.";

pub const CONNECT: &str = "\
Examples:
  troupemq bench connect --clients 19000 --source 127.0.0.1..127.0.0.8
      As fast as 96 handshakes under way allow
  troupemq bench connect --clients 5000 --rate 1000 --session-expiry 3600 --hold 1m
      1,000 a second with sessions that are kept an hour; then one minute in which none may be lost
  troupemq bench connect --clients 2000 --burst --tls --insecure
  troupemq bench connect --clients 15000 --rate 10000 --retry 500ms --source 127.0.0.1..127.0.0.8
      A fleet whose clients come back until the server lets them in
  troupemq bench connect --clients 5000 --interval 50 --json storm.json
      With rate and p99 of every 50 ms

Units: connects per second; milliseconds from the first SYN (with --rate: from when it was due) to the CONNACK.
Exit status: 0 fine, 1 a client was not let in or was lost, 2 the command line is wrong.";

pub const PUBSUB: &str = "\
Examples:
  troupemq bench pubsub --pairs 500 --qos 1 --in-flight 16 --duration 30
      Closed loop: as much as the server takes; with --until-received no faster than subscribers get it, so that no queue overflows
  troupemq bench pubsub --pairs 500 --qos 1 --rate 5000
      Open loop: the latency at 5,000 messages a second
  troupemq bench pubsub broker.example --mqtt 3.1.1 --tls --ca-file ca.pem --user ann --password secret
  troupemq bench pubsub broker.example:8000 --ws /mqtt --qos 0

Units: messages per second; milliseconds from when a message was to be sent until it is received, and until it is acknowledged.
Exit status: 0 fine, 1 acknowledged messages were lost, or messages doubled (QoS 0 and 2) or out of order, or the scene failed, 2 the command
line is wrong.";

pub const FANOUT: &str = "\
Examples:
  troupemq bench fanout --subscribers 1000 --qos 0
  troupemq bench fanout --subscribers 1000 --qos 1 --rate 50

Units: messages received per second by all subscribers together (--rate is what is published); milliseconds.
Exit status: 0 fine, 1 acknowledged messages were lost, or messages doubled (QoS 0 and 2) or out of order, or the scene failed, 2 the command
line is wrong.";

pub const FANIN: &str = "\
Examples:
  troupemq bench fanin --publishers 1000 --qos 1 --rate 10000
      A server queues only so much for one subscriber; in a closed loop it may have to drop what is beyond
  troupemq bench fanin --publishers 1000 --in-flight 1 --until-received
      Unless messages are in flight until they are received

Units: messages per second; milliseconds.
Exit status: 0 fine, 1 acknowledged messages were lost, or messages doubled (QoS 0 and 2) or out of order, or the scene failed, 2 the command
line is wrong.";

pub const SHARED: &str = "\
Examples:
  troupemq bench shared --publishers 100 --members 10 --qos 1
  troupemq bench shared --members 10 --qos 2 --rate 5000

Each message must come to one member: with QoS 1 at least once, with QoS 2 once. Order is not judged.
Units: messages per second; milliseconds.
Exit status: 0 fine, 1 acknowledged messages were lost, or messages doubled (QoS 0 and 2), or the scene failed, 2 the command line is wrong.";

pub const RETAINED: &str = "\
Examples:
  troupemq bench retained --messages 100000 --qos 1
  troupemq bench retained --messages 10000 --subscribers 10 --filter '#'
  troupemq bench retained --messages 1000 --topic house --keep
      Leaves house/0000000 to house/0000999 with the server; without --keep they are removed

Units: messages per second, from the SUBSCRIBE to the last message of all subscribers.
Exit status: 0 fine, 1 messages were lost or doubled (QoS 0 and 2), or the scene failed, 2 the command line is wrong.";

pub const OFFLINE: &str = "\
Examples:
  troupemq bench offline --sessions 100 --messages 1000
  troupemq bench offline --sessions 1000 --messages 100 --qos 2 --in-flight 100

The server must be set to queue as many messages for a session, or it loses what it acknowledged and the exit status is 1.
Units: messages per second, acknowledged while the sessions are away, and received from when they begin to come back.
Exit status: 0 fine, 1 acknowledged messages were lost, doubled (QoS 2) or out of order, or the scene failed, 2 the command line is wrong.";

pub const FAILOVER: &str = "\
Examples:
  troupemq bench failover 10.0.0.1,10.0.0.2,10.0.0.3 --pairs 100 --rate 1000 --duration 60
      Meanwhile somebody ends a server: each client goes on at the next one
  troupemq bench failover 10.0.0.1,10.0.0.2 --qos 2 --keep-alive 4
      A server that is silent is given up after the Keep Alive

Units: milliseconds; the gaps are the longest time each client was without an acknowledgement or a message, with --rate meaningful from the
time between two of its messages on.
Exit status: 0 fine, 1 acknowledged messages or kept sessions were lost, or messages doubled (QoS 0 and 2) or out of order, or the scene failed,
2 the command line is wrong.";
