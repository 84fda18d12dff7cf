//! Scripted lives of a manager.

mod acquire;
mod clients;
mod crowd;
mod events;
mod gone;
mod index;
mod killing;
mod lab;
mod late;
mod lockspaces;
mod orphans;
mod random;
mod rejoin;
mod releasing;
mod shared;
mod shutdown;
mod side;
mod users;
mod value;
mod watchdog;
