//! Why the daemon, or the way to it, refused (docs/decisions/0013-explanations.md).

use crate::output::{failure_text, print_error};
use sanlock_client::wire::{Command, code};
use sanlock_client::{Client, ClientError};

/// Says why something failed, in plain words, and what to do. `object`: what was to be worked on.
pub(super) fn explain(action: &str, object: &str, error: &ClientError) {
    print_error(explanation(action, object, error));
}

fn explanation(action: &str, object: &str, error: &ClientError) -> String {
    let result = error.result_code();
    match error {
        ClientError::Daemon { command, .. } => {
            let next = code::next_step(result, Some(*command));
            failure_text(action, object, cause(result, Some(*command)), result, next)
        }
        // It is the socket that failed, whatever was to be asked.
        ClientError::Io { op, .. } => {
            let client = Client::new();
            let socket = format!("{op} on {}", client.socket_path().display());
            let cause = error.explain().unwrap_or(UNKNOWN);
            failure_text(action, &socket, cause, result, code::next_step(result, None))
        }
        ClientError::Closed | ClientError::Reply(_) | ClientError::Desynchronised | ClientError::State(_) => {
            failure_text(action, object, &error.to_string(), result, code::next_step(code::EPIPE, None))
        }
        ClientError::Argument(_)
        | ClientError::NoPath
        | ClientError::NoLockspace
        | ClientError::NoDisks
        | ClientError::Path(_) => {
            let next = Some("give what is missing or wrong as 'sanlock help' shows it");
            failure_text(action, object, &error.to_string(), result, next)
        }
    }
}

/// Why something failed, in a phrase.
pub(super) fn reason(error: &ClientError) -> String {
    match error {
        ClientError::Daemon { code, command } => cause(*code, Some(*command)).to_owned(),
        ClientError::Io { .. } => error.explain().unwrap_or(UNKNOWN).to_owned(),
        other => other.to_string(),
    }
}

const UNKNOWN: &str = "the reason is not known";

/// What a result usually means.
fn cause(result: i32, command: Option<Command>) -> &'static str {
    code::explain(result, command).unwrap_or(UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::tests::explains;
    use sanlock_client::wire::request::BadArgument;
    use sanlock_client::wire::strings::StringError;
    use sanlock_client::wire::{PathError, ReplyError};

    /// Whatever a daemon answers to whatever command, be it a number that no daemon gives.
    #[test]
    fn every_result_of_every_command_is_explained() {
        let mut seen = 0;
        for &command in Command::ALL {
            let action = command.debug_name().map_or_else(|| command.name().to_lowercase(), str::to_owned);
            for result in (-600..=200).chain([i32::MIN, -4095, 4095, i32::MAX]).filter(|result| *result != 0)
            {
                let error = ClientError::Daemon { code: result, command };
                explains(&explanation(&action, "resource LS:R", &error), &action, "resource LS:R", result);
                seen += 1;
            }
        }
        assert!(seen > 20_000, "{seen}");
    }

    #[test]
    fn every_failure_of_the_way_to_the_daemon_is_explained() {
        for op in ["socket", "connect", "send", "recv"] {
            for errno in 1..=133 {
                let error = ClientError::Io { op, errno };
                explains(&explanation("status", "", &error), "status", &format!("{op} on /"), -errno);
            }
        }
    }

    #[test]
    fn a_socket_path_that_is_too_long_is_told_with_its_limit() {
        let error = ClientError::Io { op: "connect", errno: 36 };
        let limit = format!("at most {} bytes", sanlock_client::SOCKET_PATH_MAX);
        assert!(explanation("status", "", &error).contains(&limit) && reason(&error).contains(&limit));
    }

    #[test]
    fn every_other_failure_of_a_call_is_explained() {
        let truncated = ReplyError::Truncated { missing: 4 };
        for (error, result) in [
            (ClientError::Closed, -1),
            (ClientError::Reply(truncated), -1),
            (ClientError::Reply(ReplyError::TooManyRecords), -1),
            (ClientError::Desynchronised, -1),
            (ClientError::State(StringError::TooShort { len: 2 }), -6),
            (ClientError::State(StringError::TooManyDisks { count: 5 }), -2),
            (ClientError::Argument(BadArgument::ResourceCount { count: 9, max: 8 }), -22),
            (ClientError::NoPath, -22),
            (ClientError::NoLockspace, -22),
            (ClientError::NoDisks, -22),
            (ClientError::Path(PathError::Unterminated), -22),
        ] {
            explains(&explanation("read", "lockspace LS", &error), "read", "lockspace LS", result);
        }
    }
}
