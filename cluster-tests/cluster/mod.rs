//! Three nodes.

mod addons;
mod carried;
mod founding;
mod give_back;
mod large;
mod node_loss;
mod numbered;
mod pause;
mod redelivery;
mod restart;
mod routing;
mod storm;
mod takeover;
mod visible;
