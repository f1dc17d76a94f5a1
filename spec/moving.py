#!/usr/bin/env python3
"""Limits that move: an entry of `key AND v OP p` answers other values of p, as far as the rows that it shows allow.

Not a race but an algebra: every table of up to three rows (v of each: NULL or one of few numbers), every statement of a family, every p of
the fill, every p of a hit, and every change of one row in between that the entry's tags do not meet. The entry holds the answer to the p
of its fill; it is dropped if a row that changed satisfied the statement's WHERE for that p, before or after.

Checked: SAME (whatever p the entry serves, it is the answer that the database gives for that p at that time).
"""
import sys
from collections import namedtuple
from itertools import product

V=(None,0,1,2,3)
P_=(-1,0,1,2,3,4)
OPS={'>':lambda v,p:v>p,'>=':lambda v,p:v>=p,'<':lambda v,p:v<p,'<=':lambda v,p:v<=p}
LOWER=('>','>=')
# A row: v and w, two columns; its place in the table is its key, and its order.
St=namedtuple('St','name conds limit offset form')
# conds: ((column, op), ...), one limit each    form: how the answer is made of the rows that are left

def true(row,st,ps):
    return row is not None and all(row[c] is not None and OPS[op](row[c],p) for (c,op),p in zip(st.conds,ps))

def answer(table,st,ps):
    rows=[(i,)+r for i,r in enumerate(table) if true(r,st,ps)]
    if st.form=='count': return (len(rows),)
    if st.form=='least': return min((r[1] for r in rows),default=None),
    if st.form=='twice': rows=[r+ps for r in rows]
    rows=rows[st.offset:]
    if st.limit is not None: rows=rows[:st.limit]
    return tuple(rows)

def reach(st,ps,shown,rule):
    """From where to where each limit may move."""
    out=[]
    for (c,op),p in zip(st.conds,ps):
        vs=[r[1+c] for r in shown] if st.form in ('rows','twice') else []
        if rule=='first row': vs=vs[:1]
        vs=[v for v in vs if v is not None]
        step=int(op in ('>','<'))
        if rule=='one too far': step=0
        far=(max if rule=='the other end' else min) if op in LOWER else (min if rule=='the other end' else max)
        if op in LOWER:
            lo,hi=p,(far(vs)-step if vs else 99)
            if rule=='both sides' or (rule=='empty on both sides' and not vs): lo=-99
        else:
            lo,hi=(far(vs)+step if vs else -99),p
            if rule=='both sides' or (rule=='empty on both sides' and not vs): hi=99
        out.append((lo,hi))
    return out

def within(ps,bounds): return all(lo<=p<=hi for p,(lo,hi) in zip(ps,bounds))

def tables(rows):
    row=(None,)+tuple((v,w) for v in V for w in (None,1,2))   # None: no such row
    return product(row,repeat=rows)

def check(st,rule):
    rows=2 if len(st.conds)>1 or st.form!='rows' else 3
    row=(None,)+tuple((v,w) for v in V for w in (None,1,2))
    if rows==3: row=(None,)+tuple((v,1) for v in V)
    seen=0
    for table in product(row,repeat=rows):
        for ps in product(P_,repeat=len(st.conds)):
            held=answer(table,st,ps)
            bounds=reach(st,ps,held,rule)
            qss=[qs for qs in product(P_,repeat=len(st.conds)) if within(qs,bounds)]
            tag=ps if rule!='tags of the last hit' else None
            changed=[table]
            for at in range(rows):
                for new in row:
                    if new==table[at]: continue
                    changed.append(table[:at]+(new,)+table[at+1:])
            for now in changed:
                for qs in qss:
                    t=tag or qs
                    # The entry went with the change.
                    if any(a!=b and (true(a,st,t) or true(b,st,t)) for a,b in zip(table,now)): continue
                    for rs in (qss if rule=='tags of the last hit' else [qs]):
                        seen+=1
                        got=answer(now,st,rs)
                        if got!=held:
                            return seen,f'{table} filled at {ps}, now {now}: serves {held} at {rs}, not {got}'
    return seen,None

def family():
    for op in OPS: yield St(f'v {op} p',((0,op),),None,0,'rows')
    yield St('v BETWEEN p AND q',((0,'>='),(0,'<=')),None,0,'rows')
    yield St('v > p AND w < q',((0,'>'),(1,'<')),None,0,'rows')
    yield St('v >= p AND w >= q',((0,'>='),(1,'>=')),None,0,'rows')
    for op in OPS: yield St(f'v {op} p LIMIT 1',((0,op),),1,0,'rows')
    yield St('v > p LIMIT 2',((0,'>'),),2,0,'rows')
    yield St('v > p AND w < q LIMIT 1',((0,'>'),(1,'<')),1,0,'rows')

GREATER=St('v > p',((0,'>'),),None,0,'rows')
V_=[
 ('W1 from the fill on, up to the nearest value that is shown','HOLDS',None,None),
 ('W2 to the other side, too','VIOLATION','both sides',[GREATER]),
 ('W3 to both sides of an empty answer','VIOLATION','empty on both sides',[GREATER]),
 ('W4 one too far','VIOLATION','one too far',[GREATER]),
 ('W5 up to the farthest value','VIOLATION','the other end',[GREATER]),
 ('W6 up to the value of the first row','VIOLATION','first row',[GREATER]),
 ('W7 behind OFFSET','VIOLATION',None,[St('v > p OFFSET 1',((0,'>'),),None,1,'rows')]),
 ('W8 of an aggregate, which shows no value','VIOLATION',None,[St('count(*)',((0,'>'),),None,0,'count')]),
 ('W9 of a parameter that is used once more','VIOLATION',None,[St('v > p, and p shown',((0,'>'),),None,0,'twice')]),
 ('W10 tags of the last hit in place of those of the fill','VIOLATION','tags of the last hit',[GREATER]),
]

if __name__=='__main__':
    wanted=[a for a in sys.argv[1:] if not a.startswith('-')]
    wrong=0
    for name,expected,rule,of in V_:
        if wanted and name.split()[0] not in wanted: continue
        seen,found=0,None
        for st in of or family():
            n,found=check(st,rule)
            seen+=n
            if found:
                found=f'{st.name}: {found}'
                break
        verdict='VIOLATION' if found else 'HOLDS'
        ok=verdict==expected
        wrong+=not ok
        print(f'{"ok " if ok else "BAD"} {name}: {verdict}{" SAME" if found else ""} ({seen} cases)')
        if found and ('-v' in sys.argv or not ok): print('      ',found)
    sys.exit(wrong)
