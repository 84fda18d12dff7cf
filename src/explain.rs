//! `sanlock explain`: a result number or symbol in plain words. The texts are [`code`]'s; this file lays them out.

use crate::cli::command::ExplainArgs;
use crate::output::{FAILURE, SUCCESS, note, print, system_text};
use sanlock_wire::{Command, code};

/// The largest errno that the kernel has a name for is far below; `SANLK_*` codes begin above.
const ERRNO_NAMED_MAX: i32 = 199;

pub(crate) fn run(args: &ExplainArgs) -> u8 {
    if args.codes.is_empty() {
        print(list());
        return SUCCESS;
    }
    let mut status = SUCCESS;
    let mut shown = 0;
    for word in &args.codes {
        let texts: Vec<String> = results(word).into_iter().filter_map(text).collect();
        if texts.is_empty() {
            note("explain", &format!("{word:?} is no result number or name; 'sanlock explain' lists them"));
            status = FAILURE;
        }
        for text in texts {
            print(if shown == 0 { text } else { format!("\n{text}") });
            shown += 1;
        }
    }
    status
}

/// The results that a word stands for; 0 is one here.
fn results(word: &str) -> Vec<i32> {
    if word.parse() == Ok(0) { vec![0] } else { code::parse(word) }
}

/// One line for each result that there is advice for.
fn list() -> String {
    code::all_advice()
        .map(|advice| {
            let phrase = code::explain(advice.code, None).unwrap_or_default();
            format!("{:>5} {:<32} {phrase}\n", advice.code, symbol(advice.code).unwrap_or("-"))
        })
        .collect()
}

/// A result's symbol; -1 has two meanings, and one of them has a name.
fn symbol(result: i32) -> Option<&'static str> {
    if result == -1 { Some("EPERM") } else { code::name(result) }
}

/// All that is known of a result, `None` for a number that nothing is known of.
fn text(result: i32) -> Option<String> {
    if result == 0 {
        return Some("0\n  success\n".to_owned());
    }
    let advice = code::advice(result);
    if advice.is_none() && symbol(result).is_none() {
        return None;
    }
    let mut out = match symbol(result) {
        Some(symbol) => format!("{symbol} ({result})\n"),
        None => format!("{result}\n"),
    };
    if let Some(phrase) = code::explain(result, None) {
        out.push_str(&format!("  {phrase}\n"));
    }
    for (phrase, commands) in code::meanings_by_command(result) {
        let commands: Vec<String> = commands.into_iter().map(word_for).collect();
        out.push_str(&format!("  as the answer to {}: {phrase}\n", commands.join(", ")));
    }
    out.push_str(&elsewhere(result));
    match advice {
        Some(advice) => {
            out.push_str(&paragraph("usual causes", advice.causes));
            out.push_str(&paragraph("what to do", advice.steps));
        }
        None => out.push_str(
            "\n  sanlock does not give this number by itself: a system call on the storage or the socket does.\n  The log \
             names it: /var/log/sanlock.log, or 'sanlock client log_dump' for what is in memory.\n",
        ),
    }
    Some(out)
}

/// What other programs call the same.
fn elsewhere(result: i32) -> String {
    if (-ERRNO_NAMED_MAX..0).contains(&result) {
        return format!("  in messages of the system: {}\n", system_text(-result));
    }
    let renumbered = match result {
        code::SANLK_RELEASE_LVER | code::SANLK_RELEASE_OWNER => {
            "  the number of sanlock 3.x; 5.x uses another one\n"
        }
        -252 | -253 => "  the number of sanlock 5.x; 3.x uses another one\n",
        _ => "",
    };
    match code::strerror(result) {
        "Unknown error" => renumbered.to_owned(),
        text => format!("  in messages of programs with libsanlock: {text}\n{renumbered}"),
    }
}

fn paragraph(title: &str, phrases: &[&str]) -> String {
    let lines: String = phrases.iter().map(|phrase| format!("  - {phrase}\n")).collect();
    format!("\n  {title}:\n{lines}")
}

/// What the command line calls a command of the protocol.
fn word_for(command: Command) -> String {
    command.debug_name().map_or_else(|| command.name().to_lowercase(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanlock_lease::code::ReturnCode;

    #[test]
    fn a_result_is_told_with_causes_and_remedies() {
        let text = text(-243).unwrap();
        for expected in [
            "SANLK_ACQUIRE_IDLIVE (-243)\n  the lease is held by another host, which is alive\n",
            "  in messages of programs with libsanlock: Lease is held by another host\n",
            "\n  usual causes:\n  - ",
            "\n  what to do:\n  - 'sanlock who",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn errno_values_are_told_even_if_sanlock_never_gives_them() {
        let text = text(-54).unwrap();
        assert!(text.starts_with("EXFULL (-54)\n  in messages of the system: Exchange full\n"), "{text}");
        assert!(text.contains("does not give this number by itself"), "{text}");
        // As strerror(3) of the C library has them.
        for (errno, told) in
            [(2, "No such file or directory"), (16, "Device or resource busy"), (22, "Invalid argument")]
        {
            assert_eq!(system_text(errno), told);
        }
    }

    #[test]
    fn what_a_command_means_by_a_result_is_told() {
        let text = text(code::EEXIST).unwrap();
        assert!(
            text.contains("  as the answer to add_lockspace: the lockspace is joined already\n"),
            "{text}"
        );
        assert!(
            text.contains("  as the answer to acquire: the lease is held on this host already\n"),
            "{text}"
        );
    }

    #[test]
    fn numbers_without_a_meaning_have_no_text() {
        for number in [-200, -254, -299, -300, -1000] {
            assert_eq!(text(number), None, "{number}");
        }
        assert_eq!(results("0"), [0]);
        assert_eq!(results("-0"), [0]);
        assert_eq!(results("243"), [-243]);
    }

    /// Everything that the lease code answers, and everything in the tables of the protocol.
    #[test]
    fn every_code_that_is_ever_answered_has_a_full_text() {
        let answered = ReturnCode::ALL.iter().map(|code| code.0).filter(|code| *code != 0);
        let known = (-299..=-201).filter(|&number| code::name(number).is_some());
        for number in answered.chain(known) {
            let text = text(number).unwrap_or_else(|| panic!("{number}"));
            assert!(text.contains("usual causes:") && text.contains("what to do:"), "{number}: {text}");
        }
    }

    #[test]
    fn the_list_has_a_line_for_each() {
        let list = list();
        assert_eq!(list.lines().count(), code::all_advice().count());
        assert!(list.lines().all(|line| line.len() > 40 && line.starts_with(' ')), "{list}");
    }
}
