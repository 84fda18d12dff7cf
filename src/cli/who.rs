//! What `sanlock who` takes.

use clap::Parser;
use clap::builder::{OsStringValueParser, TypedValueParser};
use sanlock_lease::name::{Name, NameError};
use sanlock_lease::text::strict::{self, DumpRange};
use sanlock_lease::text::{DiskSpec, LockspaceSpec, ResourceSpec, TextError};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// `sanlock who`: who holds a resource, or which hosts are in a lockspace, how they are, and when what they hold could be taken.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "sanlock who", disable_version_flag = true)]
pub(crate) struct WhoArgs {
    /// LOCKSPACE, LOCKSPACE:RESOURCE, LOCKSPACE:RESOURCE:PATH:OFFSET... (up to four disks), or PATH[:OFFSET] of either
    #[arg(value_name = "RESOURCE|LOCKSPACE|PATH:OFFSET", value_parser = OsStringValueParser::new().try_map(WhoTarget::parse))]
    pub(crate) target: WhoTarget,
    /// Where the lockspace is, NAME:0:PATH:OFFSET, if this host is not in it and it is not on the resource's device
    #[arg(short = 's', value_name = "LOCKSPACE", value_parser = OsStringValueParser::new().try_map(lockspace_arg))]
    pub(crate) lockspace: Option<LockspaceSpec>,
    /// Watch the disk for so long where this host's daemon is not in the lockspace; three io timeouts unless given, 0 not at all
    #[arg(long, value_name = "SECONDS")]
    pub(crate) watch: Option<u16>,
    /// Print an object of docs/json.md
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `who` asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WhoTarget {
    /// A lockspace by its name.
    Lockspace(Name),
    /// A resource, with or without its disks.
    Resource(ResourceSpec),
    /// Whatever begins at a place.
    Place(DiskSpec),
}

/// Words that are none of these.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error(transparent)]
    Text(#[from] TextError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("give PATH or PATH:OFFSET, without a size")]
    Size,
    #[error("nothing given")]
    Empty,
}

impl WhoTarget {
    /// A place begins like a path, `/` or `.`; a resource has a colon after its lockspace.
    fn parse(text: OsString) -> Result<Self, TargetError> {
        let text = text.into_vec();
        match text.first() {
            None => Err(TargetError::Empty),
            Some(b'/' | b'.') => match strict::dump_range(&text)? {
                DumpRange { disk, size: None } => Ok(Self::Place(disk)),
                DumpRange { .. } => Err(TargetError::Size),
            },
            Some(_) if text.contains(&b':') => Ok(Self::Resource(strict::resource(&text)?)),
            Some(_) => Ok(Self::Lockspace(Name::new(&text)?)),
        }
    }
}

fn lockspace_arg(text: OsString) -> Result<LockspaceSpec, TextError> {
    let mut spec = LockspaceSpec::default();
    spec.merge(strict::lockspace(&text.into_vec())?);
    Ok(spec)
}
