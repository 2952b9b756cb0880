//! A profile: a file of `name = value` lines that says what is wanted of which settings.
//!
//! Nothing here looks at the machine. Invariant: a [`Profile`] has each setting at most once, under a known name, with a
//! value that the setting's rule can compare.

use std::{fs, path::Path};

use super::catalogue::{self, Setting};
use crate::failure::{Doing, Failure, Outcome};

/// Settings of a file, as many as are known and no more.
#[derive(Debug)]
pub(super) struct Profile {
    /// Its name, as `--profile` takes it.
    pub(super) name: String,
    /// The settings and what is wanted of them, in the file's order.
    pub(super) wants: Vec<(&'static Setting, String)>,
}

/// Reads `tuning/NAME.conf` of the repository.
pub(super) fn read(root: &Path, name: &str) -> Outcome<Profile> {
    let path = root.join("tuning").join(format!("{name}.conf"));
    let text = fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
    parse(name, &text).map_err(|problem| Failure::new(format!("tuning/{name}.conf:{problem}")))
}

/// The profile, or `LINE:COLUMN: what is wrong`.
pub(super) fn parse(name: &str, text: &str) -> Result<Profile, String> {
    let mut wants: Vec<(&'static Setting, String)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let problem = |rest: &str, what: String| {
            // `rest` is the end of the line from the fault on.
            let column = line.chars().count() - rest.chars().count() + 1;
            format!("{}:{column}: {what}", at + 1)
        };
        let content = line.trim_start();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let (key, value) = content
            .split_once('=')
            .ok_or_else(|| problem(content, String::from("this is neither `name = value` nor a # comment")))?;
        let (key, value) = (key.trim_end(), value.trim_start());
        let setting = catalogue::find(key).ok_or_else(|| problem(content, unknown(key)))?;
        if wants.iter().any(|(known, _)| known.name == setting.name) {
            return Err(problem(content, format!("{key} stands here for the second time")));
        }
        let wanted = value.trim_end();
        (setting.rule.check(wanted)).map_err(|must| problem(value, format!("{key} has to be {must}")))?;
        wants.push((setting, wanted.to_owned()));
    }
    if wants.is_empty() {
        return Err(String::from("1:1: a profile without a setting"));
    }
    Ok(Profile {
        name: name.to_owned(),
        wants,
    })
}

fn unknown(key: &str) -> String {
    let near = catalogue::SETTINGS
        .iter()
        .map(|setting| (strsim::jaro(key, setting.name), setting.name))
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .filter(|(likeness, _)| *likeness > 0.8);
    match near {
        Some((_, name)) => format!("no setting {key:?} is known here; {name} is"),
        None => format!("no setting {key:?} is known here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_understood_is_refused_with_its_place() {
        for (text, expected) in [
            ("# why\n\nvm.swappiness = 1\n", None),
            ("  vm.swappiness=1  \nfs.file-max =2", None),
            (
                "vm.swapiness = 1",
                Some("1:1: no setting \"vm.swapiness\" is known here; vm.swappiness is"),
            ),
            ("\n  colour = 1", Some("2:3: no setting \"colour\" is known here")),
            ("vm.swappiness 1", Some("1:1: this is neither")),
            (
                "vm.swappiness =  0",
                Some("1:18: vm.swappiness has to be a whole number of at least 1"),
            ),
            ("vm.swappiness =", Some("1:16: vm.swappiness has to be")),
            ("vm.swappiness = 1 # low", Some("1:17: vm.swappiness has to be")),
            (
                "vm.swappiness = 1\nvm.swappiness = 1",
                Some("2:1: vm.swappiness stands here for the second time"),
            ),
            (
                "net.ipv4.tcp_rmem = 1 2",
                Some("1:21: net.ipv4.tcp_rmem has to be 3 whole numbers"),
            ),
            ("# nothing\n", Some("1:1: a profile without")),
        ] {
            match (parse("x", text), expected) {
                (Ok(_), None) => {}
                (Err(told), Some(part)) if told.starts_with(part) => {}
                (other, _) => panic!("{text:?}: {other:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn the_committed_profiles_are_read_and_leave_no_setting_without_use() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
        let mut used = Vec::new();
        for name in ["gpu-node", "edge", "dev"] {
            let profile = read(root, name).expect(name);
            used.extend(profile.wants.iter().map(|(setting, _)| setting.name));
        }
        for setting in &catalogue::SETTINGS {
            assert!(used.contains(&setting.name), "{} is in no profile", setting.name);
        }
    }

    #[test]
    fn the_node_profile_has_what_was_promised() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
        let profile = read(root, "gpu-node").expect("it");
        for (name, wanted) in [
            ("net.core.somaxconn", "65535"),
            ("vm.swappiness", "1"),
            ("fs.file-max", "2097152"),
            ("net.ipv4.tcp_fin_timeout", "30"),
            ("limits.memlock", "2147483648"),
            ("limits.nofile", "1048576"),
        ] {
            let found = profile.wants.iter().find(|(setting, _)| setting.name == name);
            assert_eq!(found.map(|(_, value)| value.as_str()), Some(wanted), "{name}");
        }
    }
}
