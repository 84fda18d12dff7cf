//! What usually causes a result, and what to do about it: the long form of [`super::explain`].
//!
//! One table for everybody who shows results to people: the command, whatever watches the daemon, the documentation.

mod sanlk;
mod system;

use super::{explain, name, names};
use crate::command::Command;

/// Causes and remedies of one result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advice {
    /// The result: negative.
    pub code: i32,
    /// What usually causes it, the most frequent one first; phrases without full stop.
    pub causes: &'static [&'static str],
    /// What to do or to look at, the best first step first; phrases without full stop. Never empty.
    pub steps: &'static [&'static str],
}

/// Causes and remedies of a result. `None` for 0, positive numbers, numbers without a meaning, and errno values that neither a
/// daemon nor the command has a usual way to.
///
/// ```
/// use sanlock_wire::code::{SANLK_ACQUIRE_IDLIVE, advice};
/// assert!(advice(SANLK_ACQUIRE_IDLIVE).is_some_and(|advice| advice.steps[0].contains("sanlock who")));
/// ```
#[must_use]
pub fn advice(code: i32) -> Option<&'static Advice> {
    let code = names::canonical(code);
    all().find(|advice| advice.code == code)
}

/// Everything that there is advice for, first the errno values, then the `SANLK_*` codes, each in the order of their numbers.
pub fn all() -> impl Iterator<Item = &'static Advice> {
    system::ADVICE.iter().chain(sanlk::ADVICE)
}

/// The next step after a failure, as a phrase without full stop; where the command that failed is known, a step that fits it.
///
/// `command` is the command that was answered, or `None` when the failure came before one could be sent. `None` where
/// [`advice`] has nothing.
#[must_use]
pub fn next_step(code: i32, command: Option<Command>) -> Option<&'static str> {
    match command {
        Some(command) => system::step_after(code, command).or_else(|| advice(code)?.steps.first().copied()),
        // Nothing was sent: the socket is what failed.
        None => system::step_without_daemon(code).or_else(|| advice(code)?.steps.first().copied()),
    }
}

/// What a result means where a command means something of its own by it: the phrases of [`explain`] that differ from the
/// general one, each with the commands that it goes for, in the order of their numbers.
#[must_use]
pub fn meanings_by_command(code: i32) -> Vec<(&'static str, Vec<Command>)> {
    let general = explain(code, None);
    let mut found: Vec<(&'static str, Vec<Command>)> = Vec::new();
    for &command in Command::ALL {
        let Some(phrase) = explain(code, Some(command)).filter(|phrase| Some(*phrase) != general) else {
            continue;
        };
        match found.iter_mut().find(|(known, _)| *known == phrase) {
            Some((_, commands)) => commands.push(command),
            None => found.push((phrase, vec![command])),
        }
    }
    found
}

/// The results that a text stands for: a number with or without its sign (`-243`, `243`), or a symbol in any case
/// (`SANLK_ACQUIRE_IDLIVE`, `acquire_idlive`, `EAGAIN`, `again`). Several where releases of the original number one symbol
/// differently. Empty if the text is neither a number from -4095 to 4095 but 0, nor a known symbol.
///
/// ```
/// use sanlock_wire::code::parse;
/// assert_eq!(parse("243"), [-243]);
/// assert_eq!(parse("eagain"), [-11]);
/// assert_eq!(parse("SANLK_RELEASE_LVER"), [-250, -252]);
/// assert!(parse("0").is_empty());
/// ```
#[must_use]
pub fn parse(text: &str) -> Vec<i32> {
    /// The largest errno the kernel can return.
    const ERRNO_MAX: i32 = 4095;
    if let Ok(number) = text.parse::<i32>() {
        let known = number != 0 && number.unsigned_abs() <= ERRNO_MAX.unsigned_abs();
        return if known { vec![-number.abs()] } else { Vec::new() };
    }
    let wanted = text.to_ascii_uppercase();
    if wanted == "EPERM" || wanted == "PERM" {
        return vec![-1];
    }
    let is_wanted = |symbol: &str| {
        symbol == wanted
            || symbol.strip_prefix("SANLK_") == Some(&wanted)
            || symbol.strip_prefix('E') == Some(&wanted)
    };
    // An alias of errno values that C programs and their messages use.
    let wanted_alias = match wanted.as_str() {
        "EWOULDBLOCK" => Some("EAGAIN"),
        "ENOTSUP" => Some("EOPNOTSUPP"),
        "EDEADLOCK" => Some("EDEADLK"),
        _ => None,
    };
    let mut found: Vec<i32> = (-299..=-2)
        .rev()
        .filter(|&code| name(code).is_some_and(|symbol| is_wanted(symbol) || Some(symbol) == wanted_alias))
        .collect();
    // A whole symbol is meant before one that only ends like it.
    if found.iter().any(|&code| name(code) == Some(&wanted)) {
        found.retain(|&code| name(code) == Some(&wanted));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code;

    #[test]
    fn every_known_code_has_advice() {
        for number in (-299..=-201).filter(|&number| code::name(number).is_some()) {
            assert!(advice(number).is_some(), "{number}");
        }
        for number in [
            code::ENOENT,
            code::ESRCH,
            code::EIO,
            code::ENXIO,
            code::E2BIG,
            code::EAGAIN,
            code::ENOMEM,
            code::EACCES,
            code::EBUSY,
            code::EEXIST,
            code::ENODEV,
            code::EINVAL,
            code::ENOTTY,
            code::ENOSPC,
            code::EPIPE,
            code::ERANGE,
            code::ENOCSI,
            code::ELIBACC,
            code::ELIBBAD,
            code::ELIBSCN,
            code::EMSGSIZE,
            code::EOPNOTSUPP,
            code::ECONNRESET,
            code::ENOTCONN,
            code::ECONNREFUSED,
            code::EALREADY,
            code::EINPROGRESS,
            code::ESTALE,
            code::EUCLEAN,
        ] {
            assert!(advice(number).is_some(), "{number}");
        }
    }

    /// What is explained in a phrase has advice, and the other way round.
    #[test]
    fn phrases_and_advice_go_together() {
        for number in -300..=0 {
            assert_eq!(explain(number, None).is_some(), advice(number).is_some(), "{number}");
            for command in Command::ALL {
                let explained = explain(number, Some(*command)).is_some();
                assert_eq!(next_step(number, Some(*command)).is_some(), explained, "{number} {command:?}");
            }
        }
        for none in [0, 1, 11, 243, -200, -300, i32::MIN, i32::MAX] {
            assert_eq!((advice(none), next_step(none, None)), (None, None), "{none}");
        }
    }

    #[test]
    fn advice_is_usable() {
        let mut last = 0;
        for advice in all() {
            assert!(advice.code < last, "{}: once, in order", advice.code);
            last = advice.code;
            assert!(!advice.causes.is_empty() && !advice.steps.is_empty(), "{}", advice.code);
            for phrase in advice.causes.iter().chain(advice.steps) {
                assert!(
                    !phrase.is_empty() && !phrase.ends_with(['.', ' ', '\n']),
                    "{}: {phrase}",
                    advice.code
                );
                assert!(phrase.len() < 200 && !phrase.contains("  "), "{}: {phrase}", advice.code);
            }
        }
    }

    #[test]
    fn texts_stand_for_results() {
        for (text, codes) in [
            ("-243", &[-243][..]),
            ("243", &[-243]),
            ("SANLK_ACQUIRE_IDLIVE", &[-243]),
            ("sanlk_acquire_idlive", &[-243]),
            ("ACQUIRE_IDLIVE", &[-243]),
            ("EAGAIN", &[-11]),
            ("AGAIN", &[-11]),
            ("EWOULDBLOCK", &[-11]),
            ("ENOTSUP", &[-95]),
            ("EDEADLOCK", &[-35]),
            ("EPERM", &[-1]),
            ("-1", &[-1]),
            ("1", &[-1]),
            ("SANLK_ERROR", &[-201]),
            ("IO", &[-5]),
            ("SANLK_RELEASE_OWNER", &[-251, -253]),
            ("RELEASE_LVER", &[-250, -252]),
            ("RENEW_OWNER", &[-260]),
            ("4095", &[-4095]),
            ("-300", &[-300]),
        ] {
            assert_eq!(parse(text), codes, "{text}");
        }
        for text in [
            "",
            "0",
            "-0",
            "4096",
            "-99999999999",
            "2147483648",
            "-2147483648",
            "E",
            "SANLK_",
            "nonsense",
            "- 5",
        ] {
            assert_eq!(parse(text), [], "{text}");
        }
    }

    /// Every symbol leads to its own number, whatever else ends like it.
    #[test]
    fn every_symbol_is_found() {
        for number in (-299..=-1).filter(|&number| name(number).is_some()) {
            assert!(parse(name(number).unwrap()).contains(&number), "{number}");
        }
    }

    #[test]
    fn commands_that_mean_the_same_stand_together() {
        let meanings = meanings_by_command(code::EEXIST);
        assert!(
            meanings.contains(&("the lockspace is joined already", vec![Command::AddLockspace])),
            "{meanings:?}"
        );
        assert!(
            meanings.iter().any(|(phrase, _)| phrase.contains("held on this host already")),
            "{meanings:?}"
        );
        assert_eq!(meanings_by_command(code::SANLK_ACQUIRE_IDLIVE), []);
        assert_eq!(meanings_by_command(0), []);
        let mut reads = meanings_by_command(code::ENOENT);
        reads.retain(|(_, commands)| commands.contains(&Command::ReadResource));
        assert_eq!(reads.len(), 1);
        assert!(reads[0].1.len() > 1, "{reads:?}");
    }

    #[test]
    fn the_command_decides_about_the_next_step() {
        let without_daemon = next_step(code::ENOENT, None);
        assert!(without_daemon.is_some_and(|step| step.contains("sanlock daemon")), "{without_daemon:?}");
        let acquire = next_step(code::ENOSPC, Some(Command::Acquire));
        assert!(acquire.is_some_and(|step| step.contains("add_lockspace")), "{acquire:?}");
        assert_eq!(next_step(-252, None), next_step(-250, None), "renumbered");
    }

    /// What an acquire cannot read may be the record of a living owner, and the lease itself sound.
    #[test]
    fn nothing_leads_from_a_record_that_cannot_be_read_to_a_format_before_fsck() {
        for number in [
            code::SANLK_LEADER_MAGIC,
            code::SANLK_LEADER_VERSION,
            code::SANLK_LEADER_LOCKSPACE,
            code::SANLK_LEADER_CHECKSUM,
        ] {
            let phrase = explain(number, Some(Command::Acquire)).unwrap();
            assert!(phrase.contains("its owner's host id record"), "{number}: {phrase}");
            let step = next_step(number, Some(Command::Acquire)).unwrap();
            assert!(step.starts_with("'sanlock fsck PATH'"), "{number}: {step}");
        }
        for advice in all() {
            let at = |word: &str| advice.steps.iter().position(|step| step.contains(word));
            // What makes a new one where there may be one already.
            for destroys in ["direct init", "client format", "initialise the lease"] {
                let Some(init) = at(destroys) else { continue };
                let step = advice.steps[init];
                let is_careful =
                    ["only ", "when nobody", "before anybody"].iter().any(|word| step.contains(word));
                let looks_first = at("sanlock fsck").is_some_and(|fsck| fsck < init);
                let other_release = step.contains("compare-and-write");
                assert!((looks_first || other_release) && is_careful, "{}: {step}", advice.code);
            }
        }
    }

    /// -28 means a lockspace to some commands, and room to others.
    #[test]
    fn full_storage_is_not_told_as_a_lockspace_that_is_not_joined() {
        for command in [Command::WriteLockspace, Command::WriteResource, Command::FormatRindex] {
            let phrase = explain(code::ENOSPC, Some(command)).unwrap();
            let step = next_step(code::ENOSPC, Some(command)).unwrap();
            assert!(!phrase.contains("lockspace") && !step.contains("add_lockspace"), "{phrase}; {step}");
            let refused = explain(code::EBUSY, Some(command)).unwrap();
            assert!(refused.contains("in use by this daemon"), "{refused}");
        }
        let created = explain(code::ENOSPC, Some(Command::CreateResource)).unwrap();
        assert!(created.contains("full") && created.contains("failed"), "{created}");
    }
}
