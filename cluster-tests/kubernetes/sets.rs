//! Values for the chart, each a way to install it; and what the chart gives for them.

use std::sync::OnceLock;

use super::manifest::Manifest;
use super::tools::{Tools, succeeded};

/// What values.yaml has.
const CLIENTS_PER_NODE: u64 = 20_000;

pub struct Set {
    pub name: &'static str,
    pub values: &'static str,
    /// What `shutdown.clientsPerNode` is.
    pub clients_per_node: u64,
    /// What `troupemq config check` warns of.
    pub warns_of: &'static [&'static str],
}

const fn set(name: &'static str, values: &'static str) -> Set {
    Set { name, values, clients_per_node: CLIENTS_PER_NODE, warns_of: &[] }
}

pub const DEFAULTS: &str = "";
pub const ONE_NODE: &str = "replicas: 1";
pub const CERT_MANAGER: &str = "tls: {enabled: true, certManager: {enabled: true, issuerRef: {name: troupemq-ca}}}";
pub const CLUSTER_TLS: &str =
    "cluster: {tls: {enabled: true, certManager: {enabled: true, issuerRef: {name: troupemq-peers-ca}}}}";
pub const MONITORING: &str = "
monitoring: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}}
networkPolicy:
  metricsFrom:
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}
";

pub const SETS: &[Set] = &[
    set("defaults", DEFAULTS),
    set("one node", ONE_NODE),
    set("five nodes", "replicas: 5"),
    set("TLS by a Secret", "tls: {enabled: true, secretName: broker-tls}"),
    set(
        "TLS beside plain listeners, clients with certificates",
        "
tls: {enabled: true, only: false, secretName: broker-tls, clientAuthentication: REQUIRED}
authentication: {clientCertificate: {enabled: true, userName: SUBJECT_ALTERNATIVE_NAME}}
",
    ),
    set("cert-manager", CERT_MANAGER),
    set("TLS between nodes", CLUSTER_TLS),
    Set {
        warns_of: &["connections without TLS are taken, and made to nodes that have nothing else"],
        ..set(
            "TLS everywhere, in the middle of the change",
            "
tls: {enabled: true, secretName: broker-tls}
cluster: {tls: {enabled: true, secretName: node-tls, optional: true, hostnameVerification: false}}
",
        )
    },
    set("monitoring", MONITORING),
    set(
        "Secrets of one's own",
        "
cluster: {existingSecret: our-cluster, secretKey: word}
authentication: {existingSecret: our-users}
serviceAccount: {create: false, name: brokers}
",
    ),
    set(
        "load balancer",
        "
loadBalancer:
  enabled: true
  class: example.com/fast
  annotations: {example.com/kind: internal}
  sourceRanges: [192.0.2.0/24, 2001:db8::/32]
  externalTrafficPolicy: Cluster
",
    ),
    Set {
        clients_per_node: 100_001,
        ..set(
            "many clients that go slowly",
            "shutdown: {clientsPerNode: 100001, clientsPerSecond: 70, delaySeconds: 15, noticeSeconds: 0}",
        )
    },
    Set {
        clients_per_node: 0,
        ..set("no clients", "shutdown: {clientsPerNode: 0, clientsPerSecond: 1000000, noticeSeconds: 1}")
    },
    Set {
        warns_of: &["clients without credentials are let in from other machines"],
        ..set(
            "everybody may connect, nothing is guarded",
            "
authentication: {anonymous: true}
networkPolicy: {enabled: false}
prometheus: {enabled: false}
monitoring: {serviceMonitor: {enabled: true, port: http}}
podDisruptionBudget: {enabled: false}
listeners: {websocket: {enabled: false}, connectRate: {enabled: false}}
addons: {expired: false, dropped: false, dead: false, clientEvents: false}
",
        )
    },
    set(
        "all the rest",
        "
fullnameOverride: broker
replicas: 5
bindAddress: '::'
logLevel: warn,troupemq::cluster=debug
image: {repository: registry.example/mqtt/troupemq, tag: '0.2', pullPolicy: Always}
imagePullSecrets: [{name: registry}]
listeners: {mqtt: {port: 11883}, websocket: {port: 18000, path: /ws}}
cluster: {port: 17000, expectedNodes: 7, shards: 12, secret: sixteen-characters-or-more}
http: {port: 18080}
health: {port: 18889}
prometheus: {port: 19399, path: /broker}
authentication: {user: night.shift@plant-7}
declaredSharedSubscriptions:
  - {shareName: archive, topicFilter: $dropped/#}
  - {shareName: a&b, topicFilter: '<x>/+'}
extraConfig: |
  <mqtt>
      <queued-messages>
          <max-queue-size>${QUEUE_SIZE}</max-queue-size>
      </queued-messages>
  </mqtt>
extraEnv: [{name: QUEUE_SIZE, value: '5000'}]
extraVolumes: [{name: keys, emptyDir: {}}]
extraVolumeMounts: [{name: keys, mountPath: /etc/troupemq/keys, readOnly: true}]
probes: {startup: {withinSeconds: 1200}, liveness: {initialDelaySeconds: 5}, readiness: {periodSeconds: 1}}
minReadySeconds: 30
persistence: {size: 100Gi, storageClassName: fast, accessModes: [ReadWriteOncePod], annotations: {a: b}, whenDeleted: Delete}
resources: {requests: {cpu: 2}, limits: {memory: 4Gi, cpu: '4'}}
podDisruptionBudget: {maxUnavailable: 2}
topologySpread: {host: ScheduleAnyway, zone: DoNotSchedule}
service: {type: NodePort, annotations: {a: b}}
networkPolicy: {clientsFrom: [{ipBlock: {cidr: 192.0.2.0/24}}], restrictEgress: false}
serviceAccount: {annotations: {a: b}}
podLabels: {team: messaging}
podAnnotations: {a: b}
nodeSelector: {disk: fast}
tolerations: [{key: brokers, operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
priorityClassName: high
monitoring: {serviceMonitor: {enabled: true, interval: 1m, labels: {prometheus: main}}, prometheusRule: {enabled: true, labels: {prometheus: main}}}
",
    ),
];

/// Folders of `k8s`.
pub const FOLDERS: [&str; 5] = ["base", "overlays/three-nodes", "overlays/tls", "overlays/cluster-tls", "overlays/monitoring"];

/// What there is to install: by the chart with each set, and by each folder.
pub struct Rendered {
    pub name: &'static str,
    /// By the chart, where it is.
    pub set: Option<&'static Set>,
    pub manifest: Manifest,
}

/// Everything, with its objects held against their schemas. Rendered once for all tests.
pub fn rendered(tools: &Tools) -> &'static [Rendered] {
    static RENDERED: OnceLock<Vec<Rendered>> = OnceLock::new();
    RENDERED.get_or_init(|| {
        let charts = SETS.iter().map(|set| (set.name, Some(set), succeeded(set.name, tools.template(set.values, &[]))));
        let folders = FOLDERS.iter().map(|folder| (*folder, None, succeeded(folder, tools.kustomize(folder))));
        let mut names = Vec::new();
        let mut texts = Vec::new();
        for (name, set, text) in charts.chain(folders) {
            names.push((name, set));
            texts.push(text);
        }
        let manifests = tools.objects(&texts);
        assert_eq!(manifests.len(), names.len());
        names.into_iter().zip(manifests).map(|((name, set), manifest)| Rendered { name, set, manifest }).collect()
    })
}

/// One of them.
pub fn one<'a>(all: &'a [Rendered], name: &str) -> &'a Manifest {
    &all.iter().find(|rendered| rendered.name == name).unwrap_or_else(|| panic!("no {name}")).manifest
}
