//! scratch
use std::io::BufRead;
use freshet_model::*;
use freshet_sql::*;
fn main() {
    let t = |id, name: &str| Table { id: TableId(id), schema: "public".into(), name: name.into(), kind: RelationKind::Table,
        identity: ReplicaIdentity::Full, row_security: false, user_types: false, datetime: false,
        columns: ["x", "y", if id == 1 {"p"} else if id == 2 {"q"} else {"r"}].iter().map(|c| Column{name:(*c).into(), value_type: ValueType::Int, generated:false}).collect() };
    let cat = Catalog::new(CatalogVersion(1), vec![t(1,"t1"),t(2,"t2"),t(3,"t3")], Default::default(), Default::default());
    let schemas: Vec<std::sync::Arc<str>> = vec!["pg_catalog".into(),"public".into()];
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap(); let l = lex(&line);
        let out = Template::parse(&l.shape).resolve(&cat,&schemas).and_then(|f| { let p: Vec<_> = l.literals.iter().map(|l| Parameter{value:ParameterValue::Literal(l),declared_type:0}).collect(); f.bind(&p,true)});
        match out { Err(e) => println!("!{}", e.label()), Ok(tags) => println!("{}", tags.iter().map(|t| format!("t{}:{}", t.table.0, match &t.rows { RowSet::Any => "*".to_string(), RowSet::Point(p) => p.iter().map(|(c,v)| format!("{}={}", c.name, match v {Value::Int(i)=>*i,_=>panic!()})).collect::<Vec<_>>().join(",") })).collect::<Vec<_>>().join(" ")) }
    }
}
