//! Modules that import each other in a circle. A module and its submodules count as one, so imports between them do not matter.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::source::Source;
use super::{crates, report, sources};

/// The path of a module within its crate.
type Module = Vec<String>;
/// The modules that each one imports from.
type Imports = BTreeMap<Module, BTreeSet<Module>>;

#[test]
fn modules_import_each_other_in_no_circle() {
    let sources = sources();
    let mut offences = Vec::new();
    for (name, _) in crates() {
        let prefix = format!("crates/{name}/src/");
        let files: Vec<(Module, &Source)> =
            sources.iter().filter_map(|source| Some((module(source.path.strip_prefix(&prefix)?), source))).collect();
        let imports = imports(&files);
        offences.extend(circles(&imports).into_iter().map(|circle| told(&name, &circle, &imports)));
    }
    report("import cycles", &offences);
}

fn module(file: &str) -> Module {
    let path = file.trim_end_matches(".rs").split('/').map(str::to_owned);
    path.filter(|part| !["lib", "main", "mod"].contains(&part.as_str())).collect()
}

fn imports(files: &[(Module, &Source)]) -> Imports {
    let modules: BTreeSet<&Module> = files.iter().map(|(module, _)| module).collect();
    let mut imports = Imports::new();
    for (module, source) in files.iter().filter(|(module, _)| !module.iter().any(|part| part == "tests")) {
        let named = paths(&source.code_outside_tests(), module);
        let found = named
            .into_iter()
            .filter_map(|path| (0..=path.len()).rev().map(|n| path[..n].to_vec()).find(|m| modules.contains(m)));
        let apart = |other: &Module| !other.starts_with(module) && !module.starts_with(other);
        imports.insert(module.clone(), found.filter(apart).collect());
    }
    imports
}

/// All that a file names by `crate::` and `super::`, with the members of `{…}` each.
fn paths(code: &str, module: &Module) -> Vec<Module> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find("::") {
        let before = rest[..at].rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
        let (head, tail) = (before.to_owned(), &rest[at + 2..]);
        rest = tail;
        let base = match head.as_str() {
            "crate" => Vec::new(),
            "super" => module[..module.len().saturating_sub(1)].to_vec(),
            _ => continue,
        };
        rest = follow(tail, &base, &mut found);
    }
    found
}

/// Reads what stands behind `::`; gives back what is behind that.
fn follow<'a>(mut text: &'a str, base: &[String], found: &mut Vec<Module>) -> &'a str {
    let mut path = base.to_vec();
    loop {
        if let Some(group) = text.strip_prefix('{') {
            text = group;
            loop {
                text = follow(text.trim_start(), &path, found).trim_start();
                match text.strip_prefix(',') {
                    Some(next) => text = next,
                    None => return text.strip_prefix('}').unwrap_or(text),
                }
            }
        }
        let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
        let (part, behind) = text.split_at(end);
        match part {
            "super" => drop(path.pop()),
            "" | "self" => {}
            part => path.push(part.to_owned()),
        }
        let Some(next) = behind.strip_prefix("::") else {
            found.push(path);
            // `as` and a new name may follow.
            let renamed = behind.trim_start().strip_prefix("as ").map(str::trim_start);
            return renamed.map_or(behind, |name| name.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_'));
        };
        text = next;
    }
}

/// The largest sets of modules of which each imports, in the end, from each other.
fn circles(imports: &Imports) -> Vec<BTreeSet<Module>> {
    let reached: BTreeMap<&Module, BTreeSet<Module>> =
        imports.keys().map(|module| (module, reach(module, imports))).collect();
    let mut circles = BTreeSet::new();
    for (module, reaches) in &reached {
        let circle: BTreeSet<Module> = reaches
            .iter()
            .filter(|other| reached.get(other).is_some_and(|back| back.contains(*module)))
            .cloned()
            .collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reach(from: &Module, imports: &Imports) -> BTreeSet<Module> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
    while let Some(module) = open.pop() {
        for next in imports.get(&module).into_iter().flatten() {
            if seen.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    seen
}

/// How many modules there are in it, and a shortest way around.
fn told(name: &str, circle: &BTreeSet<Module>, imports: &Imports) -> String {
    let ways = circle.iter().filter_map(|module| around(module, circle, imports));
    let way = ways.min_by_key(Vec::len).unwrap_or_default();
    let way: Vec<String> = way.iter().map(|module| module.join("::")).collect();
    format!("{name}: {} modules import each other, such as {}", circle.len(), way.join(" -> "))
}

fn around(start: &Module, circle: &BTreeSet<Module>, imports: &Imports) -> Option<Vec<Module>> {
    let mut open = VecDeque::from([vec![start.clone()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = open.pop_front() {
        for next in imports.get(way.last()?)?.iter().filter(|next| circle.contains(*next)) {
            let longer = [way.as_slice(), std::slice::from_ref(next)].concat();
            if next == start {
                return Some(longer);
            }
            if seen.insert(next.clone()) {
                open.push_back(longer);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found() {
        let sources = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::{b::{self, X as Y}, c::Z};"),
            ("b.rs", "use super::c; // crate::a"),
            ("c.rs", "fn f() { crate::b::d::g() }"),
            ("c/inside.rs", "use super::f;"),
            ("b/d.rs", "#[cfg(test)]\nmod tests { use crate::a; }"),
        ];
        let sources = sources.map(|(path, text)| Source::new(path.to_owned(), text.to_owned()));
        let files: Vec<_> = sources.iter().map(|source| (module(&source.path), source)).collect();
        let found = circles(&imports(&files));
        // b imports c, and c what is inside of b, which imports nothing.
        assert!(found.is_empty(), "{found:?}");
        let back = Source::new("b/d.rs".to_owned(), "use crate::c::f;".to_owned());
        let files: Vec<_> = files.into_iter().take(5).chain([(module("b/d.rs"), &back)]).collect();
        let all = imports(&files);
        let found = circles(&all);
        assert_eq!(
            found.iter().map(|circle| told("x", circle, &all)).collect::<Vec<_>>(),
            ["x: 2 modules import each other, such as b::d -> c -> b::d"]
        );
    }
}
