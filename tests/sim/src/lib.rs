//! A deterministic simulator: many hosts, faulty disks, drifting clocks, and the production code on every host of ours.
//!
//! A [`World`] runs from a seed: the same seed and settings give the same run, event for event. A host of ours is the production
//! [`Manager`](sanlock_manager::Manager) and the production lease machines; the simulator is what stands around them in `daemon/`
//! (threads, messages, timers: [`daemon`], [`worker`], [`tasks`], [`link`]), the processes and the administrator ([`clients`]), and
//! the watchdog: a device, and wdmd's production decisions ([`mod@wdmd`]). Peers that behave like the original share the first disk ([`reference`](mod@reference), [`peer`]).
//!
//! [`Checks`] watches the properties of lease-algorithms.md 13.6 from outside, and some of our own. Each of them can fail: [`sabotage`] breaks the hosts in one way after the other, and a test sees to it that it is
//! noticed.
//!
//! # Fault model
//!
//! * Disks as such, lost, old or dead: `damage.rs`. Single operations: [`disk`]; a host loses its way to one disk or to all,
//!   or has a sector of a lockspace that hangs, and with it every look at more than one host id: [`chaos`].
//! * Sectors and areas have any of the sizes that the format knows, the same everywhere in a run. Resources are formatted anew: `formats.rs`.
//! * 2 to 16 hosts, each with its own io timeout of those that go with the watchdog fire timeout F, and another one in a lockspace
//!   when ADD_LOCKSPACE says so. F is the same for all: another one is outside the assumptions (A4).
//! * Clocks have different zeros and run wrong, watchdog devices early or late, by as much as may be: [`bounds`].
//! * A daemon, or one of its threads, stands still for any time; the rest goes on. Then it takes in what came meanwhile, in any
//!   order that keeps that of each sender. It crashes, shuts down, and is started again; its processes go on.
//! * Processes: [`clients`]. Leases that outlive them, and count or not: `orphans.rs`. Requests for leases of others: `requests.rs`. Host events: `notes.rs`.
//! * Power is cut at any moment, and comes back.
//! * A write of the host id lease that timed out may land when its lockspace has been given up and left long ago: such a write
//!   alone keeps neither lockspace nor watchdog waiting for ever, but the daemon that made it does not join with that host id there before it
//!   has ended; a later daemon does (the exception to rule R3). It prolongs nobody's life (S11).
//! * What has failed in doubt may land after its daemon has ended and the next one has started; any other write ends before that.
//! * A host leaves its lockspace and comes back while another one does not look.
//! * The rejoin records cannot be written now and then, and are lost with the power half of the time.
//!
//! # Checks
//!
//! | Code | What |
//! |---|---|
//! | S1 to S15 | as in lease-algorithms.md 13.6; S1 to S3 and S5 for exclusive holds, S1, S4 and S12 for shared ones |
//! | R1, R2, R3, R12 | a ballot value is never forgotten, a block never goes back, a write that may land is waited for, no renewal is written twice |
//! | W1 | the watchdog never fires while all leases of its host were renewed in time |
//! | W2 | it never fires for lockspaces that nobody uses and nothing may write in |
//! | W3 | no lockspace is given up, and no process signalled, because of another lockspace |
//! | W4 | a holder is gone, or its host is reset, at 8T + F after the last renewal at the latest |
//! | V1 to V3, N1, N2, D1, I1 | value blocks, names, versions demanded, INQUIRE: `checks/values.rs` |
//! | F1 | nobody is granted what is not formatted to the end: `checks/formats.rs` |
//! | Q1, Q2 | requests for leases: `checks/requests.rs` |
//! | E1, E2 | host events: `checks/notes.rs` |
//! | L5 | what takes a lease in a lockspace that is gone, or for a daemon that shuts down, ends after a few more reads |
//! | L | when faults have ended, everybody joins, and everybody gets every lease, exclusively and shared |
//!
//! [`World`]: world::World
//! [`Checks`]: checks::Checks
#![forbid(unsafe_code)]

mod admin;
pub mod asking;
pub mod bounds;
pub mod calm;
pub mod campaign;
pub mod chaos;
pub mod checks;
pub mod clients;
pub mod clock;
pub mod daemon;
mod damage;
pub mod dice;
pub mod disk;
mod ends;
mod event;
pub mod fault;
pub mod faults;
mod formats;
mod front;
pub mod host;
mod identity;
mod ios;
mod jobs;
pub mod layout;
pub mod link;
mod notes;
mod orphans;
pub mod peer;
pub mod queue;
pub mod record;
pub mod reference;
pub mod report;
mod requests;
pub mod sabotage;
pub mod script;
pub mod settings;
mod sharing;
pub mod shrink;
pub mod stage;
pub mod table;
pub mod tasks;
mod text;
mod values;
pub mod vm;
pub mod wdmd;
pub mod work;
pub mod worker;
pub mod world;
