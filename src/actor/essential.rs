//! Actors a node cannot do without. A client's actor that fails costs its connection; a hub, a taker or the add-on supervisor that failed
//! would leave a node that looks alive and loses messages. Such a node ends itself, and its restart rebuilds everything from the replicas.

/// Held by an essential actor.
pub struct Essential(pub &'static str);

impl Drop for Essential {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(actor = self.0, "an actor that the node cannot do without has failed: the node ends");
            std::process::exit(EXIT_FAILED_ACTOR);
        }
    }
}

/// Told apart from a configuration error (2) and a failed disk (1).
const EXIT_FAILED_ACTOR: i32 = 70;
