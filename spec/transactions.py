#!/usr/bin/env python3
"""Transactions: hits of REPEATABLE READ transactions by lo and hi, and fills inside a transaction, which have no proof of their own.

A REPEATABLE READ transaction's first read goes upstream and takes its snapshot. Before it is sent: lo = the position up to which
everything is delivered and proven visible. After its answer: hi = end(). A later read may hit an entry with read_end <= lo, while
applied >= hi: the entry then reflects all of the snapshot (delivered, still installed) and nothing else (nothing after lo). A
look-up reads applied first and then gets the entry, with anything in between.

A fill inside an open transaction cannot have S0 or end() injected. It may be installed if no matching commit was PENDING when it was
registered, and none was delivered until it is installed; read_end is read once the transaction has ended. Its statement's snapshot
must be younger than the registration: READ COMMITTED, or the first read of a REPEATABLE READ transaction.

One key, writers that match it, a prober, fills one after the other by others.

Checked: FRESH; SNAPSHOT (a hit of a REPEATABLE READ transaction is exactly what its snapshot gives); OWN (a hit shows the
transaction's own write); DIRTY (an entry holds nothing uncommitted).
"""
from collections import namedtuple
from search import Switches, explore, main

OWN=-1   # the transaction's own uncommitted write

class P(Switches):
    reader='rr'        # the reading transaction: 'rr' | 'rc': READ COMMITTED, hits as outside of a transaction | None
    lo='proven'        # position up to which everything is 'proven' visible | 'applied' | None: no bound
    lo_at='before'     # lo is taken 'before' the first read is sent | 'after' its answer
    hi='after'         # end() is read 'after' the first read | 'before' it | None: no bound
    order='applied'    # a look-up reads 'applied' first | gets the 'entry' first
    write=False        # the reading transaction may write
    after_write=False  # ... and hit afterwards
    proof=True         # fills have S0 and read end() right after the query; else they run in a transaction
    pending=True       # such a fill does not begin while a matching commit is PENDING
    taint=True          # what was delivered since its registration makes it fail
    until='install'    # ... delivered until it is 'install'ed | until its 'result' arrived
    end='after'        # its read_end is read 'after' its transaction has ended | 'before' the query
    snapshot='query'   # it reads in a snapshot taken by its 'query' | 'begin': one taken before it was registered
    dirty=False        # its transaction may have written before
    writers=(0,1)
    fills=2
    rounds=2           # of the prober

# fill: (phase, candidates, S0, result, read_end)   tx: (phase, lo, snapshot, hi, entry, own write)
St=namedtuple('St','wal vis dl pend ent fill left prb tx bad')

def run(p):
    none=frozenset()
    init=St((),none,0,none,None,None,p.fills,('idle',0,None),('new',0,none,0,None,False),'')
    show=lambda xs:'{'+','.join('own' if x==OWN else f'W{x}' for x in sorted(xs))+'}'
    def check(s):
        if s.bad: return s.bad
        if s.ent is None: return None
        if OWN in s.ent[0]: return ('DIRTY',f'entry={show(s.ent[0])}')
        if not frozenset(s.wal[:s.dl])<=s.ent[0]: return ('FRESH',f'entry={show(s.ent[0])}, delivered {show(s.wal[:s.dl])}')
        return None
    def low(s): return {'proven':min([s.wal.index(x) for x in s.pend],default=s.dl),'applied':s.dl,None:9}[p.lo]
    def steps(s):
        out=[]
        def add(lab,**k): out.append((lab,s._replace(**k)))
        for w in p.writers:
            if w not in s.wal: add(f'W{w}: commit record in WAL ({len(s.wal)+1})',wal=s.wal+(w,))
            elif w not in s.vis: add(f'W{w}: visible',vis=s.vis|{w})
        if s.dl<len(s.wal):
            x=s.wal[s.dl]; f=s.fill
            late=p.until=='result' and f and f[0]=='open'
            add(f'stream delivers W{x}',dl=s.dl+1,ent=None,pend=s.pend|{x},fill=f and f[0]!='begun' and p.taint and not late and (f[0],f[1]|{x},*f[2:]) or f)
        if s.prb[0]=='idle' and s.prb[1]<p.rounds and s.pend: add(f'prober takes snapshot {show(s.vis)}',prb=('out',s.prb[1]+1,s.vis))
        elif s.prb[0]=='out': add(f'prober answer {show(s.prb[2])}',prb=('idle',s.prb[1],None),pend=s.pend-s.prb[2])
        # fills of others
        f=s.fill
        def fill(lab,f,**k): add('fill: '+lab,fill=f,**k)
        def register(res):
            cand=s.pend if p.pending else none
            if p.proof or not cand: fill(f'registered (pending {show(s.pend)})',('reg',cand,None,res,len(s.wal)),left=s.left if res is not None else s.left-1)
        if f is None:
            if s.ent is None and s.left:
                if p.snapshot=='query': register(None)
                else: fill(f'transaction takes its snapshot {show(s.vis)}',('begun',none,None,s.vis,0),left=s.left-1)
        elif f[0]=='begun': register(f[3])
        elif f[0]=='reg' and p.proof: fill(f'S0={show(s.vis)}',('s0',f[1],s.vis,None,0))
        elif f[0] in ('reg','s0'):
            res=f[3] if p.snapshot=='begin' else s.vis
            for own in ((none,frozenset((OWN,))) if p.dirty else (none,)): fill(f'query: result={show(res|own)}',('read' if p.proof else 'open',f[1],f[2],res|own,f[4]))
        elif f[0]=='read': fill(f'end()={len(s.wal)}',('done',*f[1:4],len(s.wal)))
        elif f[0]=='open': fill('its transaction has ended, '+(f'end()={len(s.wal)}' if p.end=='after' else f'read_end={f[4]}'),('done',f[1],none,f[3],f[4] if p.end=='before' else len(s.wal)))
        else: fill(f'result {show(f[3])}: '+('not cached' if f[1]-f[2] else f'INSTALL, read_end={f[4]}'),None,ent=s.ent if f[1]-f[2] else (f[3],f[4]))
        # the reading transaction
        ph,lo,snap,hi,e,own=s.tx
        def tx(lab,*t,bad=''): add('tx: '+lab,tx=t,bad=bad)
        if p.reader is None: return out
        if ph=='new':
            if p.reader=='rc': tx('begins','open',9,none,0,None,False)
            else: l=low(s); tx(f'first read is sent, lo={l}','sent',l,none,len(s.wal),None,False)
        elif ph=='sent': tx(f'first read, snapshot {show(s.vis)}','read',lo,s.vis,hi,None,False)
        elif ph=='read':
            h={'after':len(s.wal),'before':hi,None:0}[p.hi]; l=lo if p.lo_at=='before' else low(s)
            tx(f'answer, lo={l} hi={h}','open',l,snap,h,None,False)
        elif ph=='open':
            if p.write and not own: tx('writes','open',lo,snap,hi,None,True)
            if own and not p.after_write: pass
            elif p.order=='applied':
                if s.dl>=hi: tx(f'look-up, applied={s.dl}','entry',lo,snap,hi,s.dl,own)
            elif s.ent is not None: tx(f'look-up gets {show(s.ent[0])}','applied',lo,snap,hi,s.ent,own)
        else:
            e2=s.ent if ph=='entry' else e
            at=e if ph=='entry' else s.dl
            if e2 is not None and e2[1]<=min(lo,at) and s.dl>=hi:
                bad=''
                if p.reader=='rr' and e2[0]!=snap: bad=('SNAPSHOT',f'hit {show(e2[0])} in the snapshot {show(snap)}')
                if own: bad=('OWN',f'hit {show(e2[0])} after an own write')
                tx(f'HIT {show(e2[0])}','open',lo,snap,hi,None,own,bad=bad)
            else: tx('upstream','open',lo,snap,hi,None,own)
        return out
    return explore(init,check,steps)

FAST=dict(fills=1,rounds=1)
BARE=dict(proof=False,reader=None)
V=[
 P('T1 REPEATABLE READ: hits by lo and hi','HOLDS',fast=FAST),
 P('T2 T1 without lo','VIOLATION SNAPSHOT',lo=None,fast=FAST),
 P('T3 T1 without hi','VIOLATION SNAPSHOT',hi=None,fast=FAST),
 P('T4 T1 with lo = applied instead of proven visible','VIOLATION SNAPSHOT',lo='applied',fast=FAST),
 P('T5 T1 with lo taken after the first read','VIOLATION SNAPSHOT',lo_at='after',fast=FAST),
 P('T6 T1 with hi read before the first read','VIOLATION SNAPSHOT',hi='before',fast=FAST),
 P('T7 T1 where a look-up gets the entry before it reads applied','VIOLATION SNAPSHOT',order='entry',fast=FAST),
 P('T8 T1 with own writes, no hits after one','HOLDS',write=True,fast=FAST),
 P('T9 T1 with hits after an own write','VIOLATION OWN',write=True,after_write=True,fast=FAST),
 P('U1 READ COMMITTED: hits before the first write','HOLDS',reader='rc',write=True,fast=FAST),
 P('U2 READ COMMITTED: hits after it','VIOLATION OWN',reader='rc',write=True,after_write=True,fast=FAST),
 P('U3 fills in transactions: nothing PENDING at registration, nothing delivered until installation','HOLDS',**BARE),
 P('U4 U3 begun while a commit is PENDING','VIOLATION FRESH',pending=False,**BARE),
 P('U5 U3 installed although a commit was delivered in flight','VIOLATION FRESH',taint=False,**BARE),
 P('U6 U3 where only what was delivered until the result arrived counts','VIOLATION FRESH',until='result',**BARE),
 P('U7 U3 in the older snapshot of a REPEATABLE READ transaction','VIOLATION FRESH',snapshot='begin',**BARE),
 P('U8 U3 after an own write','VIOLATION DIRTY',dirty=True,**BARE),
 P('U9 T1 with the fills of U3','HOLDS',proof=False,fast=FAST),
 P('U10 U9 with read_end read before the query','VIOLATION SNAPSHOT',proof=False,end='before',fast=FAST),
]
if __name__=='__main__': main(V,run)
