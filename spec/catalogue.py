#!/usr/bin/env python3
"""DDL as a commit that matches everything, and the loading of the catalogue as a fill.

The query reads a view that shows table a, until the DDL D makes it show table b: result = (table, version of its row). The tags of a
fill come from the catalogue that Freshet has loaded, the result from the one that the query meets. So a result of the new
definition under the tags of the old one is missed by every write to b.

D has a place in the stream (event triggers), or none (polling: a load finds the difference). Its delivery invalidates everything, fails
all flights and puts the catalogue out of use; a load is accepted if its snapshot shows every delivered D. That a flight's S0 shows
D is no excuse: its tags are those of the old catalogue.

Checked: FRESH, whenever a hit could be served (entry installed, applied >= read_end): it equals the query on some state that
contains all that was delivered. Polling: D counts as delivered once an accepted load shows it; before, D seen by a query is the
stated exception (bounded by D of the lease).
"""
from collections import namedtuple
from search import Switches, explore, main
from join_keys import reflects, value, link

D,WA,WB=range(3); NAME=('D','Wa','Wb')

class P(Switches):
    stream=True        # D is in the stream
    invalidate=True         # its delivery invalidates
    flights='fail'     # what becomes of flights under way at its delivery, or at a load with a difference: 'fail'
                       # | 'candidate': may install if their S0 shows D | 'ignore'
    closed=True        # from its delivery until a load was accepted no fill begins
    proof=True         # a load is accepted only if its snapshot shows the delivered D
    flush=True         # a load with another definition than before flushes, and fails the flights
    read_end=True      # hits need applied >= read_end
    loads=2            # loads that may differ; one under way at a time
    fills=2

# cat: 'a' | 'b' | None: not in use   load: None | snapshot   ent: (result, tag, read_end)
# fill: (phase, candidates, S0, tag, result, read_end)   known: a load that showed D was accepted
St=namedtuple('St','wal vis dl pend cat load loads known ent fill left')
FAIL='fail'

def run(p):
    none=frozenset()
    init=St((),none,0,none,'a',None,p.loads,False,None,None,p.fills)
    show=lambda xs:'{'+','.join(x if x==FAIL else NAME[x] for x in sorted(xs,key=str))+'}'
    matches=lambda x,tag:x==D or x==(WA if tag=='a' else WB)
    def delivered(s):
        dl=set(s.wal[:s.dl])
        return dl if p.stream else (dl-{D})|({D} if s.known else set())
    def check(s):
        if s.ent is None or (p.read_end and s.dl<s.ent[2]): return None
        if not p.stream and not s.known and D in s.vis: return None
        if reflects(s.ent[0],delivered(s),s.wal): return None
        return ('FRESH',f'entry={s.ent[0]} tagged {s.ent[1]} can be served, delivered {show(delivered(s))}')
    def struck(f): return f and {'fail':(f[0],f[1]|{FAIL},*f[2:]),'candidate':(f[0],f[1]|{D},*f[2:]),'ignore':f}[p.flights]
    def steps(s):
        out=[]
        def add(lab,**k): out.append((lab,s._replace(**k)))
        for w in range(3):
            if w not in s.wal: add(f'{NAME[w]}: commit record in WAL ({len(s.wal)+1})',wal=s.wal+(w,))
            elif w not in s.vis: add(f'{NAME[w]}: visible',vis=s.vis|{w})
        if s.dl<len(s.wal):
            x=s.wal[s.dl]; f=s.fill
            if x!=D:
                hit=s.ent and matches(x,s.ent[1])
                add(f'stream delivers {NAME[x]}'+(', invalidates' if hit else ''),dl=s.dl+1,ent=None if hit else s.ent,pend=s.pend|{x},
                    fill=f and ((f[0],f[1]|{x},*f[2:]) if matches(x,f[3]) else f))
            elif p.stream: add('stream delivers D',dl=s.dl+1,ent=None if p.invalidate else s.ent,pend=s.pend|{D},fill=struck(f),cat=None if p.closed else s.cat)
            else: add('stream passes D',dl=s.dl+1)
        # loads of the catalogue: asked for at any time, by the poller or because it is not in use
        if s.load is None:
            if s.loads: add(f'load: snapshot {show(s.vis)}, the view shows {link(s.vis)}',load=s.vis,loads=s.loads-1)
        elif p.proof and D in s.wal[:s.dl] and D not in s.load and p.stream: add('load refused: it does not show D; asked again',load=None,loads=s.loads+1)
        else:
            new=link(s.load); differs=new!=(s.cat or 'a')
            go=p.flush and differs
            add(f'load accepted: the view shows {new}'+(', flush' if go else ''),cat=new,load=None,known=s.known or D in s.load,ent=None if go else s.ent,fill=struck(s.fill) if go else s.fill)
        f=s.fill
        def fill(lab,f,**k): add('fill: '+lab,fill=f,**k)
        if f is None:
            if s.ent is None and s.left and s.cat: fill(f'registered, tag {s.cat} (pending {show(s.pend)})',('reg',frozenset(x for x in s.pend if matches(x,s.cat)),None,s.cat,None,0),left=s.left-1)
        elif f[0]=='reg': fill(f'S0={show(s.vis)}',('s0',f[1],s.vis,*f[3:]))
        elif f[0]=='s0': fill(f'query: result={value(s.vis)}',('read',*f[1:4],value(s.vis),0))
        elif f[0]=='read': fill(f'end()={len(s.wal)}',('done',*f[1:5],len(s.wal)))
        else: fill(f'result {f[4]} tagged {f[3]} arrives: '+('not cached' if f[1]-f[2] else 'INSTALL'),None,ent=s.ent if f[1]-f[2] else (f[4],f[3],f[5]))
        return out
    return explore(init,check,steps)

V=[
 P('Q1 DDL invalidates, fails flights, closes; loads are accepted under proof','HOLDS',fast=dict(fills=1)),
 P('Q2 a load is accepted without proof','VIOLATION',proof=False),
 P('Q3 fills begin between delivery and load, under the old catalogue','VIOLATION',closed=False),
 P('Q4 flights under way are not touched','VIOLATION',flights='ignore'),
 P('Q5 flights under way may install if their S0 shows the DDL','VIOLATION',flights='candidate'),
 P('Q6 DDL does not invalidate','VIOLATION',invalidate=False),
 P('Q7 no read_end rule: tags of the old catalogue, result of the new','VIOLATION',read_end=False),
 P('Q8 polling: a load with a difference flushes and fails flights','HOLDS',stream=False,fast=dict(fills=1)),
 P('Q9 polling: a load with a difference leaves flights alone','VIOLATION',stream=False,flights='ignore'),
 P('Q10 polling: a load with a difference does not flush','VIOLATION',stream=False,flush=False),
]
if __name__=='__main__': main(V,run)
