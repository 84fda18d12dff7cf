//! The watchdog multiplexer `wdmd`: what its clients need, and what the daemon decides.
//!
//! *What it does.* [`protocol`] is the message both sides exchange, [`client`] one supervised connection. *What it does not
//! do.* Nothing here touches a watchdog device; the program `wdmd` does.
//!
//! Section numbers in comments are those of the specification of wdmd.
#![forbid(unsafe_code)]

pub mod client;
pub mod decide;
pub mod protocol;
