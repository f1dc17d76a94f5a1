
#variable_conflict use_column
DECLARE
  changed oid[] := '{}';      -- relations that are there
  dropped text[] := '{}';     -- others, as "oid name"
  everything boolean := false;
  granted boolean := false;
  content bytea;
  lost record;
  said text;                  -- the command, and the calls that led to it
BEGIN
  IF tg_event = 'ddl_command_start' THEN
    -- What a published table may not become: unlogged, or virtual columns of it another expression. All tables that the command
    -- may mean, and the session's user may alter, leave the publication. Where none does, or that fails, the command fails as it would have.
    BEGIN
      GET DIAGNOSTICS said = PG_CONTEXT;
      said := lower(concat(current_query(), ' ', said));
      IF length(said) > 200000 OR said !~ 'set[[:space:]]+(unlogged|expression)' THEN
        RETURN;
      END IF;
      PERFORM set_config('lock_timeout', '3s', true);  -- after one second autovacuum gives way
      FOR lost IN
        SELECT p.pubname, n.nspname, c.relname
        FROM pg_publication p JOIN pg_description m ON m.objoid = p.oid AND m.classoid = 'pg_publication'::regclass
          AND m.description LIKE 'Freshet%'
        JOIN pg_publication_rel r ON r.prpubid = p.oid JOIN pg_class c ON c.oid = r.prrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE CASE WHEN c.relname ~ '[][:space:].,;:(){}*"''<>=/-]' THEN strpos(said, lower(quote_ident(c.relname))) > 0
            ELSE lower(c.relname) = ANY (regexp_split_to_array(said, '[][:space:].,;:(){}*"''<>=/-]+')) END
          -- The text may name tables in a comment, say. Who may not alter a table does not take it out.
          AND pg_has_role(session_user, c.relowner, 'MEMBER')
          AND (said ~ 'set[[:space:]]+unlogged' OR EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attgenerated = 'v'))
      LOOP
        BEGIN
          EXECUTE format('LOCK TABLE ONLY %I.%I IN SHARE UPDATE EXCLUSIVE MODE', lost.nspname, lost.relname);
          EXECUTE format('ALTER PUBLICATION %I DROP TABLE ONLY %I.%I', lost.pubname, lost.nspname, lost.relname);
        EXCEPTION WHEN OTHERS THEN
          RAISE LOG 'freshet: cannot take %.% out of %: % (%)', lost.nspname, lost.relname, lost.pubname, sqlerrm, sqlstate;
        END;
      END LOOP;
    EXCEPTION WHEN OTHERS THEN
      RAISE LOG 'freshet: cannot make way for %: % (%)', tg_tag, sqlerrm, sqlstate;
    END;
    RETURN;
  END IF;
  IF tg_tag IN ('COMMENT', 'SECURITY LABEL', 'ALTER DEFAULT PRIVILEGES', 'CREATE PUBLICATION')
     OR tg_tag LIKE '% SUBSCRIPTION' OR tg_tag LIKE '% STATISTICS' THEN
    RETURN;
  END IF;
  BEGIN
    IF tg_event = 'ddl_command_end' THEN
      WITH command AS (
        SELECT CASE
            WHEN d.classid = 'pg_class'::regclass AND c.relkind IN ('i', 'I')
              THEN (SELECT i.indrelid FROM pg_index i WHERE i.indexrelid = d.objid)
            WHEN d.classid = 'pg_class'::regclass AND c.relkind <> 'c' THEN d.objid
            WHEN d.classid = 'pg_policy'::regclass THEN (SELECT polrelid FROM pg_policy WHERE oid = d.objid)
            WHEN d.classid = 'pg_rewrite'::regclass THEN (SELECT ev_class FROM pg_rewrite WHERE oid = d.objid)
            WHEN d.classid = 'pg_trigger'::regclass THEN (SELECT tgrelid FROM pg_trigger WHERE oid = d.objid)
            WHEN d.classid = 'pg_constraint'::regclass
              THEN (SELECT nullif(conrelid, 0) FROM pg_constraint WHERE oid = d.objid)
          END AS relation,
          d.classid IS NULL AND d.object_type = 'TABLE' AS granted,
          d.object_type IN ('SEQUENCE', 'LARGE OBJECT', 'publication relation', 'publication namespace') AS harmless
        FROM pg_event_trigger_ddl_commands() d
        LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
        WHERE d.schema_name IS DISTINCT FROM 'pg_temp'
      )
      SELECT coalesce(array_agg(DISTINCT relation) FILTER (WHERE relation IS NOT NULL), '{}'),
        coalesce(bool_or(relation IS NULL AND NOT granted AND NOT harmless), false), coalesce(bool_or(granted), false)
        INTO changed, everything, granted FROM command;
      IF granted THEN
        -- What was granted on is not told. Rows written by this transaction are younger than it; others may be too.
        IF pg_relation_size('pg_attribute') > 8388608 THEN
          everything := true;
        ELSE
          SELECT changed || coalesce(array_agg(oid), '{}') INTO changed FROM (
            SELECT oid FROM pg_class WHERE age(xmin) <= age(pg_current_xact_id()::xid)
            UNION SELECT attrelid FROM pg_attribute WHERE age(xmin) <= age(pg_current_xact_id()::xid)) AS written;
        END IF;
      END IF;
    ELSE
      WITH gone AS (
        SELECT d.*, objsubid = 0 AND object_type IN ('table', 'view', 'materialized view', 'foreign table') AS relation,
          CASE
            WHEN classid = 'pg_class'::regclass AND objsubid > 0 THEN objid
            WHEN object_type IN ('default value', 'table constraint', 'trigger', 'rule', 'policy', 'publication relation')
            THEN
              (SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = d.address_names[1] AND c.relname = d.address_names[2])
          END AS part_of,
          object_type IN ('default value', 'table constraint', 'trigger', 'rule', 'policy', 'publication relation',
            'publication', 'publication namespace', 'index', 'sequence', 'toast table', 'statistics object',
            'default acl') OR object_type = 'type' AND NOT original AND NOT normal AS harmless
        FROM pg_event_trigger_dropped_objects() d WHERE NOT is_temporary
      )
      SELECT coalesce(array_agg(objid || ' ' || object_name) FILTER (WHERE relation), '{}'),
        coalesce(array_agg(DISTINCT part_of) FILTER (WHERE part_of IS NOT NULL), '{}'),
        coalesce(bool_or(NOT relation AND part_of IS NULL AND NOT harmless), false)
        INTO dropped, changed, everything FROM gone;
    END IF;
    IF NOT everything THEN
      WITH RECURSIVE parent(oid) AS (
        SELECT unnest(changed) UNION SELECT i.inhparent FROM parent p JOIN pg_inherits i ON i.inhrelid = p.oid
      ), child(oid) AS (
        SELECT unnest(changed) UNION SELECT i.inhrelid FROM child c JOIN pg_inherits i ON i.inhparent = c.oid
      ), relation(line) AS (
        SELECT unnest(dropped) UNION
        SELECT c.oid || ' ' || c.relname FROM pg_class c
        WHERE c.oid IN (SELECT oid FROM parent UNION SELECT oid FROM child)
          AND c.relpersistence <> 't' AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
      )
      SELECT count(*) > 1000, string_agg(convert_to(line, 'UTF8') || decode('00', 'hex'), ''::bytea)
        INTO everything, content FROM relation;
    END IF;
  EXCEPTION WHEN OTHERS THEN
    everything := true;
    RAISE LOG 'freshet: % (%), so all cached results go', sqlerrm, sqlstate;
  END;
  BEGIN
    IF everything OR content IS NOT NULL THEN
      content := convert_to('1 ', 'UTF8') || CASE WHEN everything THEN convert_to('*', 'UTF8') ELSE content END;
      PERFORM pg_logical_emit_message(true, 'freshet.ddl', content);
    END IF;
  EXCEPTION WHEN OTHERS THEN
    RAISE LOG 'freshet: no message for %: % (%)', tg_tag, sqlerrm, sqlstate;
  END;
  IF tg_event <> 'ddl_command_end' OR tg_tag !~ '^(ALTER|DROP)' OR tg_tag LIKE '% PUBLICATION'
     AND NOT EXISTS (SELECT FROM pg_event_trigger_ddl_commands() d WHERE d.classid = 'pg_publication'::regclass) THEN
    RETURN;
  END IF;
  -- An UPDATE or DELETE in a published table would fail without a replica identity, and from version 18 on with generated columns
  -- in it that the publication does not send: it never sends virtual ones.
  FOR lost IN
    SELECT p.pubname, n.nspname, c.relname
    FROM pg_publication p JOIN pg_description m ON m.objoid = p.oid AND m.classoid = 'pg_publication'::regclass
      AND m.description LIKE 'Freshet%'
    JOIN pg_publication_rel r ON r.prpubid = p.oid JOIN pg_class c ON c.oid = r.prrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
      AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END
    WHERE c.relkind = 'r' AND (c.relreplident <> 'f' AND i.indexrelid IS NULL
      OR current_setting('server_version_num') >= '180000' AND EXISTS (SELECT FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          AND (a.attgenerated = 'v' OR a.attgenerated = 's' AND to_jsonb(p) ->> 'pubgencols' IS DISTINCT FROM 's')
          AND (c.relreplident = 'f' OR a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]))))
  LOOP
    BEGIN
      EXECUTE format('ALTER PUBLICATION %I DROP TABLE ONLY %I.%I', lost.pubname, lost.nspname, lost.relname);
    EXCEPTION WHEN OTHERS THEN
      RAISE LOG 'freshet: cannot take %.% out of %: % (%)', lost.nspname, lost.relname, lost.pubname, sqlerrm, sqlstate;
    END;
  END LOOP;
END
