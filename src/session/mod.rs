//! One client's protocol state machine, sans-I/O: packets and verdicts in, effects out.
//!
//! The machine never waits: where it needs an outside verdict it emits an effect with a [`Ticket`] and goes on when the answer
//! comes. It knows no socket and no clock; `now_ms` is handed in (monotonic for timers, `wall_ms` to stamp).

pub mod effect;
pub mod machine;
pub mod settings;

pub use effect::{AckOutcome, Effect, End, Registered, Registration, Subscription, Ticket, WillRegistration};
pub use machine::Machine;
pub use settings::SessionSettings;
