//! CREATE CACHE and DROP CACHE: rules that operators make while Freshet runs. They are written to the state file before they are in force.

use freshet_proxy::{AdminError, NewCache, RuleText};

use crate::config::running::Running;
use crate::config::{rules, state_file};

impl Running {
    /// Adds a rule. Returns until when it is kept, in words.
    pub(super) fn create_cache(&self, user: &str, new: &NewCache) -> Result<String, AdminError> {
        let error = |sqlstate, message| AdminError { sqlstate, message };
        let rule = rules::created(new).map_err(|(sqlstate, message)| error(sqlstate, message))?;
        let NewCache { name, digest, .. } = new;
        self.change_created(|all| {
            if let Some(name) = name.as_ref().filter(|name| all.iter().any(|rule| rule.is_called(name))) {
                return Err(error("42710", format!("the name \"{name}\" is in use: DROP CACHE \"{name}\" first")));
            }
            if all.iter().any(|rule| rule.is_called(digest)) {
                let message = format!("there is a rule for the statement {digest}: DROP CACHE {digest} first");
                return Err(error("42710", message));
            }
            if all.len() >= state_file::RULES_MAX {
                let message = format!("there are {} rules by SQL, which is the limit", all.len());
                return Err(error("54000", message));
            }
            all.push(rule);
            Ok(())
        })?;
        tracing::info!("user \"{user}\" has created a rule for the statement {digest}");
        Ok(match &self.state_file {
            Some(path) => format!("in {}", path.display()),
            None => "until Freshet ends: --state-file is not set".to_owned(),
        })
    }

    /// Removes the rule of a name or digest, or all. Returns their digests and names.
    pub(super) fn drop_caches(
        &self,
        user: &str,
        called: Option<&str>,
    ) -> Result<Vec<(String, Option<String>)>, AdminError> {
        let dropped = self.change_created(|all| {
            let is_dropped = |rule: &mut RuleText| called.is_none_or(|called| rule.is_called(called));
            let dropped: Vec<RuleText> = all.extract_if(.., is_dropped).collect();
            if let Some(called) = called.filter(|_| dropped.is_empty()) {
                let message =
                    format!("CREATE CACHE has made no rule \"{called}\": SHOW RULES lists all, with their origin");
                return Err(AdminError { sqlstate: "42704", message });
            }
            Ok(dropped)
        })?;
        let row = |rule: RuleText| (rule.digest.unwrap_or_default(), rule.name);
        let rows: Vec<_> = dropped.into_iter().map(row).collect();
        let digests: Vec<&str> = rows.iter().map(|(digest, _)| digest.as_str()).collect();
        tracing::info!("user \"{user}\" has dropped the rules for these statements: {}", digests.join(", "));
        Ok(rows)
    }

    /// A new process takes over (true): nothing is changed here any more. Or it has not done so after all. Returns the previous state.
    pub(crate) fn set_retired(&self, retired: bool) -> bool {
        // A change that has begun is complete, and in the file.
        let _one_by_one = self.state();
        self.served.databases.set_retired(retired)
    }

    /// Reads what may have been changed through the process before this one while this one was starting.
    pub(crate) fn read_again(&self) {
        let _one_by_one = self.state();
        if let Some(path) = &self.state_file {
            self.served.set_created_rules(state_file::read(path));
        }
    }

    /// Changes the rules that SQL has created: in the file first.
    fn change_created<T>(
        &self,
        change: impl FnOnce(&mut Vec<RuleText>) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        // Of two changes the later one begins with the rules of the earlier one.
        let _one_by_one = self.state();
        self.check_in_charge().map_err(|message| AdminError { sqlstate: "55000", message })?;
        let mut all = self.served.rules().sql;
        let changed = change(&mut all)?;
        if let Some(path) = &self.state_file {
            state_file::write(path, &all).map_err(|error| {
                let message = format!("{} cannot be written, and no rule has changed: {error}", path.display());
                AdminError { sqlstate: "58030", message }
            })?;
        }
        self.served.set_created_rules(all);
        Ok(changed)
    }
}
