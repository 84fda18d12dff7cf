//! Resource indexes without the daemon: `format`, `lookup`, `update`, `rebuild` (command-line.md 7.22, 8).
//!
//! The lease of the index is not taken: nobody else may be changing it meanwhile.

use super::init::record;
use super::report::{ALIGN_OFFSET, Failure, first_step, report};
use super::storage::open_step;
use crate::cli::command::{IndexArgs, OfflineIndexAction};
use crate::index::{found, request, size_flags};
use crate::output::{FAILURE, note, print};
use crate::subject;
use sanlock_blockio::EngineKind;
use sanlock_daemon::oneshot::{
    Io, Limits, ToolError, format_rindex, lookup_rindex, rebuild_rindex, update_rindex,
};
use sanlock_lease::rindex::RindexError;
use sanlock_wire::flags::RindexCmdFlags;

/// The number for "no index given": ENOENT.
const NO_INDEX: i32 = -2;

pub(super) fn index(action: OfflineIndexAction, args: &IndexArgs) -> u8 {
    let name = match action {
        OfflineIndexAction::Format => "format",
        OfflineIndexAction::Lookup => "lookup",
        OfflineIndexAction::Update => "update",
        OfflineIndexAction::Rebuild => "rebuild",
    };
    if args.index.disk.path.is_empty() {
        print(format!("{name} done {NO_INDEX}\n"));
        note(name, "give the index: -x LOCKSPACE:PATH:OFFSET");
        return FAILURE;
    }
    let outcome = carry_out(action, args);
    let status = report(name, &subject::index(args), &outcome);
    if let Ok(text) = outcome {
        print(text);
    }
    status
}

impl Failure for ToolError {
    fn code(&self) -> i32 {
        self.code().0
    }

    fn next(&self) -> Option<&'static str> {
        const ENTRIES: &str = "'sanlock direct dump -f 1 PATH:OFFSET' lists the entries of the index";
        match self {
            Self::Rindex(RindexError::NoSuchName(_) | RindexError::Full(_)) => Some(ENTRIES),
            Self::Rindex(RindexError::Missing("the name of the resource")) => Some("give it: -e NAME"),
            Self::Rindex(RindexError::Missing(_)) => Some("give it: -e NAME:OFFSET"),
            Self::Unaligned { .. } => Some(ALIGN_OFFSET),
            Self::Open(error) => open_step(error),
            error => first_step(error.code().0),
        }
    }
}

fn carry_out(action: OfflineIndexAction, args: &IndexArgs) -> Result<Vec<u8>, ToolError> {
    let (index, entry) = request(args)?;
    let mut io = Io::new(EngineKind::probe()?, Limits::default())?;
    match action {
        OfflineIndexAction::Format => {
            let mut text = [b"format rindex ", args.index.lockspace.as_bytes(), b":"].concat();
            text.extend_from_slice(&args.index.disk.path);
            text.extend_from_slice(format!(":{} {:#x}", args.index.disk.offset, size_flags(args)).as_bytes());
            record(&text);
            format_rindex(&mut io, &index).map(|()| Vec::new())
        }
        OfflineIndexAction::Lookup => lookup_rindex(&mut io, &index, &entry).map(|entry| found(&entry)),
        OfflineIndexAction::Update => {
            let what = if args.clear { RindexCmdFlags::UPDATE_REM } else { RindexCmdFlags::UPDATE_ADD };
            update_rindex(&mut io, &index, &entry, what).map(|_| Vec::new())
        }
        OfflineIndexAction::Rebuild => rebuild_rindex(&mut io, &index).map(|()| Vec::new()),
    }
}
