//! Three nodes.

mod addons;
mod carried;
mod declared;
mod founding;
mod large;
mod node_loss;
mod numbered;
mod pause;
mod redelivery;
mod restart;
mod retained;
mod routing;
mod shared;
mod storm;
mod takeover;
mod visible;
