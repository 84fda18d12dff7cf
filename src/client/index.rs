//! Resource indexes: `format`, `create`, `delete`, `lookup`, `update`, `rebuild` (command-line.md 7.22).

use super::done;
use crate::cli::command::{IndexAction, IndexArgs};
use crate::index::{found, request};
use crate::output::{FAILURE, failure, note, print};
use crate::subject;
use sanlock_client::wire::code;
use sanlock_client::wire::flags::RindexCmdFlags;
use sanlock_client::{Client, ClientError};

/// What to do where a resource has to be named.
const GIVE_NAME: &str = "give it: -e NAME";

pub(super) fn index(client: &Client, action: IndexAction, args: &IndexArgs) -> u8 {
    let unnamed = args.entry.name.is_empty() && !args.index.disk.path.is_empty();
    // The daemon would make one without a name, which no delete finds again.
    if unnamed && action == IndexAction::Create {
        let (name, object) = (word(action), subject::index(args));
        print(format!("{name} done {}\n", code::EINVAL));
        let reason = "the name of the resource is missing";
        failure(name, &object, reason, code::EINVAL, Some(GIVE_NAME));
        return FAILURE;
    }
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
    if unnamed && action == IndexAction::Delete && outcome.is_err() {
        note(name, &format!("no resource was named: {GIVE_NAME}"));
    }
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
