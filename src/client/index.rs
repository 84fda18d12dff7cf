//! Resource indexes: `format`, `create`, `delete`, `lookup`, `update`, `rebuild` (command-line.md 7.22).

use super::done;
use crate::cli::command::{IndexAction, IndexArgs};
use crate::index::{found, request};
use crate::output::print;
use crate::subject;
use sanlock_client::wire::flags::RindexCmdFlags;
use sanlock_client::{Client, ClientError};

pub(super) fn index(client: &Client, action: IndexAction, args: &IndexArgs) -> u8 {
    let none = RindexCmdFlags::empty();
    let (name, outcome) = match request(args).map_err(ClientError::from) {
        Err(error) => (word(action), Err(error)),
        Ok((index, entry)) => (
            word(action),
            match action {
                IndexAction::Format => client.format_rindex(&index, none).map(|()| Vec::new()),
                IndexAction::Create => client
                    .create_resource(&index, &entry, none, 0, args.num_hosts)
                    .map(|made| format!("offset {}\n", made.offset).into_bytes()),
                IndexAction::Delete => client.delete_resource(&index, &entry, none).map(|()| Vec::new()),
                IndexAction::Lookup => client.lookup_rindex(&index, &entry, none).map(|entry| found(&entry)),
                IndexAction::Update => {
                    let what =
                        if args.clear { RindexCmdFlags::UPDATE_REM } else { RindexCmdFlags::UPDATE_ADD };
                    client.update_rindex(&index, &entry, what).map(|_| Vec::new())
                }
                IndexAction::Rebuild => client.rebuild_rindex(&index, none).map(|()| Vec::new()),
            },
        ),
    };
    let status = done(name, &subject::index(args), &outcome);
    if let Ok(text) = outcome {
        print(text);
    }
    status
}

/// What the action is called in its output.
fn word(action: IndexAction) -> &'static str {
    match action {
        IndexAction::Format => "format",
        IndexAction::Create => "create_resource",
        IndexAction::Delete => "delete_resource",
        IndexAction::Lookup => "lookup",
        IndexAction::Update => "update",
        IndexAction::Rebuild => "rebuild",
    }
}
