//! What `multipath.conf` says about a device (multipath.conf(5)), as far as it concerns how long I/O may hang.
//!
//! Only the configuration is read, not the running daemon nor its built-in table of storage products, so "not said" is an answer.

use super::root::Root;

/// Nested sections deeper than that are not looked into; the format has two.
const DEPTH_MAX: usize = 4;

/// A section: its name, its settings, its sections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Section {
    name: String,
    settings: Vec<(String, String)>,
    sections: Vec<Section>,
}

/// What happens to I/O when no path is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPath {
    /// It fails.
    Fail,
    /// It waits for ever.
    Queue,
    /// It waits for so many checks of the paths.
    Retries(u64),
}

/// What the configuration says about one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) no_path: Option<NoPath>,
    /// What holds instead where neither the configuration for this device nor the built-in table of products says it.
    pub(super) no_path_by_default: Option<NoPath>,
    /// Seconds between two checks.
    pub(super) polling_interval: Option<u64>,
    /// As written.
    pub(super) fast_io_fail: Option<String>,
    /// As written.
    pub(super) dev_loss: Option<String>,
}

/// The device asked about.
pub(super) struct Device<'a> {
    pub(super) wwid: &'a str,
    pub(super) vendor: &'a str,
    pub(super) product: &'a str,
}

/// All configuration of multipath, `None` if there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Config(Section);

impl Config {
    pub(super) fn of(root: &Root) -> Option<Self> {
        let mut texts: Vec<String> = root.text("/etc/multipath.conf").into_iter().collect();
        let more = root.names("/etc/multipath/conf.d").into_iter().filter(|name| name.ends_with(".conf"));
        texts.extend(more.filter_map(|name| root.text(&format!("/etc/multipath/conf.d/{name}"))));
        (!texts.is_empty()).then(|| Self::parse(&texts.join("\n")))
    }

    fn parse(text: &str) -> Self {
        let mut open = vec![Section::default()];
        for line in text.lines() {
            for part in parts(without_comment(line)) {
                match part {
                    Part::Open(name) if open.len() <= DEPTH_MAX => {
                        open.push(Section { name: name.to_owned(), ..Section::default() });
                    }
                    Part::Open(_) => {}
                    Part::Close => close(&mut open),
                    Part::Setting(text) => {
                        let (key, value) = text.split_once([' ', '\t']).unwrap_or((text, ""));
                        let setting = (key.to_owned(), plain(value.trim()));
                        if let Some(section) = open.last_mut() {
                            section.settings.push(setting);
                        }
                    }
                }
            }
        }
        while open.len() > 1 {
            close(&mut open);
        }
        Self(open.pop().unwrap_or_default())
    }

    /// What is said about a device: its own sections, overrides, its product's, defaults, in this order, and of several of one kind the last one.
    /// Between its product's and defaults comes the built-in table of products, which is not known here.
    pub(super) fn of_device(&self, device: &Device<'_>) -> Said {
        let named = |name: &'static str| self.0.sections.iter().filter(move |s| s.name == name).rev();
        let inner = |name| named(name).flat_map(|s| s.sections.iter().rev());
        let own = inner("multipaths").filter(|s| s.value("wwid").is_some_and(|wwid| wwid == device.wwid));
        let product = inner("devices").filter(|s| {
            let fits = |key, found| s.value(key).is_none_or(|pattern| matches(pattern, found));
            fits("vendor", device.vendor) && fits("product", device.product)
        });
        let for_it: Vec<&Section> = own.chain(named("overrides")).chain(product).collect();
        let defaults: Vec<&Section> = named("defaults").collect();
        let say = |key: &str| first(&for_it, key).or_else(|| first(&defaults, key)).map(str::to_owned);
        Said {
            no_path: no_path(&for_it),
            no_path_by_default: no_path(&defaults),
            polling_interval: first(&defaults, "polling_interval").and_then(|text| text.parse().ok()),
            fast_io_fail: say("fast_io_fail_tmo"),
            dev_loss: say("dev_loss_tmo"),
        }
    }
}

impl Section {
    /// The last setting of this name.
    fn value(&self, key: &str) -> Option<&str> {
        self.settings.iter().rev().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }
}

fn close(open: &mut Vec<Section>) {
    if open.len() > 1 {
        if let (Some(done), Some(outer)) = (open.pop(), open.last_mut()) {
            outer.sections.push(done);
        }
    }
}

/// What the first of these sections says that says something.
fn first<'a>(sections: &[&'a Section], key: &str) -> Option<&'a str> {
    sections.iter().find_map(|s| s.value(key))
}

fn no_path(sections: &[&Section]) -> Option<NoPath> {
    match first(sections, "no_path_retry") {
        Some("fail" | "0") => Some(NoPath::Fail),
        Some("queue") => Some(NoPath::Queue),
        Some(number) => number.parse().ok().map(NoPath::Retries),
        // The older way to say it.
        None => first(sections, "features")
            .filter(|features| features.contains("queue_if_no_path"))
            .map(|_| NoPath::Queue),
    }
}

/// Where the first of these characters is, outside strings in double quotes. (A quote in such a string is written as two.)
fn unquoted(text: &str, wanted: &[char]) -> Option<usize> {
    let mut quoted = false;
    text.char_indices().find_map(|(at, c)| {
        quoted ^= c == '"';
        (!quoted && wanted.contains(&c)).then_some(at)
    })
}

fn without_comment(line: &str) -> &str {
    let end = unquoted(line, &['#', '!']).unwrap_or(line.len());
    line.get(..end).unwrap_or_default().trim()
}

/// A value as it is meant: what stands between its quotes, if it has some.
fn plain(value: &str) -> String {
    let Some(quoted) = value.strip_prefix('"') else { return value.to_owned() };
    quoted.strip_suffix('"').unwrap_or(quoted).replace("\"\"", "\"")
}

enum Part<'a> {
    Open(&'a str),
    Close,
    Setting(&'a str),
}

/// The parts of a line: `name {`, settings, `}`. More than one of them may stand in a line.
fn parts(line: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = line;
    while let Some(at) = unquoted(rest, &['{', '}']) {
        let (before, after) = rest.split_at(at);
        let before = before.trim();
        if after.starts_with('{') {
            parts.push(Part::Open(before));
        } else {
            if !before.is_empty() {
                parts.push(Part::Setting(before));
            }
            parts.push(Part::Close);
        }
        rest = after.get(1..).unwrap_or_default();
    }
    if !rest.trim().is_empty() {
        parts.push(Part::Setting(rest.trim()));
    }
    parts
}

/// Whether a pattern of `multipath.conf`, a regular expression, fits. Literal text, `.*` and anchors are understood, which is what such
/// patterns consist of; others fit nothing.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, begins) = pattern.strip_prefix('^').map_or((pattern, false), |p| (p, true));
    let (pattern, ends) = pattern.strip_suffix('$').map_or((pattern, false), |p| (p, true));
    let mut pieces = pattern.split(".*");
    let first = pieces.next().unwrap_or_default();
    let rest: Vec<&str> = pieces.collect();
    let mut at = match text.find(first) {
        Some(at) if !begins || at == 0 => at + first.len(),
        _ => return false,
    };
    for piece in rest {
        match text.get(at..).and_then(|left| left.find(piece)) {
            Some(found) => at += found + piece.len(),
            None => return false,
        }
    }
    !ends || at == text.len() || pattern.ends_with(".*")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        defaults {
            polling_interval 5     # seconds
            no_path_retry    fail
        }
        devices {
            device { vendor "ACME"
                     product "^Disk.*"
                     no_path_retry queue }
        }
        overrides { fast_io_fail_tmo 5 }
        multipaths {
            multipath {
                wwid  3600a
                no_path_retry 4
            }
        }
    "#;

    fn said(wwid: &str, vendor: &str, product: &str) -> Said {
        Config::parse(TEXT).of_device(&Device { wwid, vendor, product })
    }

    #[test]
    fn the_nearest_section_decides() {
        assert_eq!(said("3600a", "ACME", "Disk 9").no_path, Some(NoPath::Retries(4)));
        assert_eq!(said("3600b", "ACME", "Disk 9").no_path, Some(NoPath::Queue));
        // What a built-in table of products may say stands above defaults.
        let other = said("3600b", "ACME", "My Disk");
        assert_eq!((other.no_path, other.no_path_by_default), (None, Some(NoPath::Fail)));
        assert_eq!(other.polling_interval, Some(5));
        assert_eq!(other.fast_io_fail.as_deref(), Some("5"));
        assert_eq!(
            any_device("overrides {\nfeatures \"1 queue_if_no_path\"\n}").no_path,
            Some(NoPath::Queue)
        );
        assert_eq!(any_device(""), Said::default());
    }

    fn any_device(text: &str) -> Said {
        Config::parse(text).of_device(&Device { wwid: "1", vendor: "ACME", product: "Disk" })
    }

    #[test]
    fn the_last_of_several_decides() {
        for text in [
            "overrides { no_path_retry queue }\noverrides { no_path_retry 4 }",
            "overrides { no_path_retry queue\n no_path_retry 4 }",
            "multipaths { multipath { wwid 1\n no_path_retry queue }\n multipath { wwid 1\n no_path_retry 4 } }",
            "devices { device { vendor .*\n no_path_retry queue } }\ndevices { device { vendor ACME\n no_path_retry 4 } }",
            "devices { device { vendor ACME\n no_path_retry 4 }\n device { vendor A.*\n dev_loss_tmo 9 } }",
        ] {
            assert_eq!(any_device(text).no_path, Some(NoPath::Retries(4)), "{text}");
        }
        let twice = any_device("defaults { polling_interval 5 }\ndefaults { polling_interval 9 }");
        assert_eq!(twice.polling_interval, Some(9));
    }

    #[test]
    fn quotes_and_comments() {
        let text = "devices {\n device {\n vendor \"A#1 {!\" # of \"old\n product \"2.5\"\" SSD\"\n no_path_retry \"queue\" ! }\n } }\n";
        let device = Device { wwid: "", vendor: "A#1 {!", product: "2.5\" SSD" };
        assert_eq!(Config::parse(text).of_device(&device).no_path, Some(NoPath::Queue));
        assert_eq!(any_device(text).no_path, None);
    }

    #[test]
    fn whatever_the_text_is() {
        for text in
            ["}", "}}} a b {", "{{{{{{{{{{{{ x y", "defaults {", "a { b { c { d { e { f { g 1 } } } } } } }"]
        {
            let _ = Config::parse(text);
        }
    }

    #[test]
    fn patterns() {
        for (pattern, text, fits) in [
            (".*", "ACME", true),
            ("ACME", "ACME", true),
            ("AC", "ACME", true),
            ("^CME", "ACME", false),
            ("ME$", "ACME", true),
            ("AC$", "ACME", false),
            ("A.*E", "ACME", true),
            ("A.*X", "ACME", false),
            ("", "ACME", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} on {text}");
        }
    }
}
