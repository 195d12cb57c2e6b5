//! What goes wrong with machines and networks, done to real processes: three nodes in network namespaces with own addresses, nodes killed
//! and stopped, links cut and slowed, while clients write down every packet and a judge reads what they wrote.
//!
//! `net` joins the nodes by a switch that can cut, delay, lose and double; `history` and `judge` are the checker; `campaign` draws faults
//! from a seed. What namespaces are needed for is skipped, with the reason, where they are not permitted.

mod campaign;
mod clocks;
mod exactly_once;
mod expiry;
mod history;
mod islands;
mod judge;
mod kit;
mod net;
mod partitions;
mod players;
mod random;
mod rows;
mod schedule;
mod wills;
