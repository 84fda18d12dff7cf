//! `sanlock who`: who holds a resource, or which hosts are in a lockspace, how they are, and when what they hold could be had.
//!
//! The lease is read from its disks ([`disk`]), what this host has seen of others is asked of its daemon ([`local`]). Where no
//! daemon of this host is in the lockspace, the disk is watched for a while instead: a host that renews changes its record. Nothing is
//! written. [`judge`] turns what was seen into a state and a time, [`report`] is the result, [`text`] prints it for people.

mod disk;
mod gather;
mod judge;
mod local;
mod report;
mod text;

use crate::cli::who::{WhoArgs, WhoTarget};
use crate::direct::report::first_step;
use crate::direct::{Failure, StorageError, failed};
use crate::json;
use crate::output::{SUCCESS, print};
use crate::subject;
use sanlock_client::ClientError;
use sanlock_client::wire::code;
use sanlock_lease::code::ReturnCode;
use sanlock_lease::paxos::inspect::InspectError;
use sanlock_lease::verify::LeaderError;

const ACTION: &str = "who";

/// Why the question cannot be answered.
#[derive(Debug, thiserror::Error)]
enum WhoError {
    #[error(
        "its place is not known: no process of this host holds it, and it does not lie on the lockspace's device; \
         give it as LOCKSPACE:RESOURCE:PATH:OFFSET"
    )]
    ResourcePlace,
    #[error(
        "its place is not known: no process of this host holds it, and it does not begin within {0} MiB from the lockspace's lease on; \
         what lies further behind was not looked at: give it as LOCKSPACE:RESOURCE:PATH:OFFSET"
    )]
    NotLookedFurther(u64),
    #[error("the daemon of this host is not in this lockspace; give its place as PATH:OFFSET")]
    LockspacePlace,
    #[error(
        "no daemon of this host could be asked ({0}); give the place as PATH:OFFSET, or LOCKSPACE:RESOURCE:PATH:OFFSET"
    )]
    NoDaemon(ClientError),
    #[error("no lease begins there")]
    NoLease,
    #[error("a resource index of lockspace {lockspace:?} begins there; its own lease is at offset {lease}")]
    Index { lockspace: String, lease: u64 },
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Leader(#[from] LeaderError),
    #[error(transparent)]
    Inspect(#[from] InspectError),
    #[error(transparent)]
    Daemon(#[from] ClientError),
}

impl Failure for WhoError {
    fn code(&self) -> i32 {
        match self {
            Self::ResourcePlace | Self::NotLookedFurther(_) | Self::LockspacePlace => ReturnCode::ENOENT.0,
            Self::NoDaemon(error) | Self::Daemon(error) => error.result_code(),
            Self::NoLease => ReturnCode::LEADER_MAGIC.0,
            Self::Index { .. } => ReturnCode::EINVAL.0,
            Self::Storage(error) => error.code(),
            Self::Leader(error) | Self::Inspect(InspectError::Leader(error)) => ReturnCode::from(error).0,
            Self::Inspect(InspectError::TooFew { .. }) => ReturnCode::LEADER_READ.0,
            Self::Inspect(InspectError::Differ) => ReturnCode::LEADER_DIFF.0,
        }
    }

    fn next(&self) -> Option<&'static str> {
        match self {
            Self::Storage(error) => error.next(),
            // It runs, and no storage is in its way when it answers from memory.
            Self::NoDaemon(error) | Self::Daemon(error) if error.result_code() == -libc::ETIMEDOUT => Some(
                "see whether the daemon is stopped or hangs: 'ps -o pid,stat,wchan,args -C sanlock', and its log",
            ),
            Self::ResourcePlace | Self::NotLookedFurther(_) | Self::LockspacePlace => Some(
                "check the name: 'sanlock client status' lists the lockspaces, as 's', and what is held here, as 'r'",
            ),
            // What the daemon says goes by its own numbers.
            Self::NoDaemon(error) | Self::Daemon(error) => code::next_step(error.result_code(), None),
            error => first_step(error.code()),
        }
    }
}

/// Answers the question and gives the exit status: 0 whenever there is an answer, whatever it is.
pub(crate) fn run(args: &WhoArgs) -> u8 {
    match gather::gather(args) {
        Ok(report) if args.json => {
            json::print_document(ACTION, &report);
            SUCCESS
        }
        Ok(report) => {
            print(text::of(&report));
            SUCCESS
        }
        Err(error) => {
            if args.json {
                json::print_failure(ACTION, error.code(), &error.to_string());
            }
            failed(ACTION, &object(&args.target), &error)
        }
    }
}

fn object(target: &WhoTarget) -> String {
    match target {
        WhoTarget::Lockspace(name) => subject::lockspace_name(*name),
        WhoTarget::Resource(spec) => subject::resource(spec),
        WhoTarget::Place(disk) => subject::place(disk),
    }
}
