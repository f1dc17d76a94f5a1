#!/usr/bin/env python3
"""Explicit-state model check (exhaustive interleavings, BFS) of the fill / invalidate race of a SQL cache that is
filled by running the original query upstream and invalidated from PostgreSQL logical replication.

Upstream (PostgreSQL): a writer commits in separate steps   WAL -> (visible) -> ack.   WAL order = stream order; the
VISIBLE step (ProcArrayEndTransaction) may happen in any order and any time later (SyncRepWaitForLSN, scheduling).
All writes match the tag of the one query modelled; a query result is modelled as the set of transactions it reflects.

Fill: start (register) -> [probe S0 = pg_current_snapshot()] -> exec (result := visible set) -> arrive (install or drop).
Stream: deliver next commit in WAL order: invalidates the installed entry, marks the fills in flight, adds to PENDING.
Prober: takes a snapshot upstream, its answer arrives later, removes now-visible commits from PENDING.

Checked in every reachable state:
 FRESH  an installed entry reflects every commit that the stream delivered (=> never permanently stale, staleness <= lag)
 RYW    a cache hit reflects every write acknowledged (to any session) before the lookup began
 MONO   what one session sees never goes backwards (hits and misses mixed)
 ONCE   (in-place deltas) no commit applied twice
"""
import sys
from collections import deque
from search import report

class P:                       # protocol switches
    def __init__(s, name, expect, **k):
        s.name=name; s.expect=expect
        s.taint=False           # stream marks fills in flight (lease)
        s.lsn=False            # trust an LSN read before the query: commits <= LSN assumed in the result
        s.pending=False        # keep PENDING (delivered, not proved visible) and test the fill against it
        s.probe=False          # S0 snapshot pipelined before the query
        s.rr=False             # exact: probe and query share one snapshot (REPEATABLE READ)
        s.prober=False         # background prober cleans PENDING
        s.keep=True            # commits PENDING at fill start stay attached to the fill (no GC under a fill)
        s.late=False           # tags known only on arrival: test the ring of everything delivered since start
        s.expire=False         # PENDING entries are dropped after some time instead of by proof of visibility
        s.tomb=False           # the install order is also kept against entries already invalidated
        s.single=True          # single flight; else concurrent fills may overwrite
        s.order=False          # without single flight: install only if started after the installed entry's arrival
        s.ryw=None             # None | 'wait' (ack waits until delivered) | 'fence' (hits need delivered>=acked LSN)
        s.watermark=False          # session watermark: after an upstream read, hits need delivered >= WAL end seen, or newer fill
        s.inplace=False        # apply deltas in place instead of invalidating
        s.look=(2,2)           # look-ups per reader session
        s.rounds=2             # prober rounds
        s.check=('FRESH',)
        s.fast={}              # smaller bounds for --fast
        for a,b in k.items(): assert hasattr(s,a),a; setattr(s,a,b)

def run(p, NW=2, limit=8_000_000):
    NR=len(p.look)
    # state: (wal, vis, acked, pc_w, delivered, pending, entry, clock, readers, prober, fence, tomb)
    # entry: None | (sorted reflected, arrive_clock, S0, start_clock, WAL end at arrival)
    # reader: (lookups_left, phase, seen, watermark, last_clock, fill)
    # fill: (start_clock, start_delivered, frozenset carry, taintset, S0|None, lsn, result|None)
    init=((),frozenset(),frozenset(),(0,)*NW,0,frozenset(),None,0,tuple((k,'idle',frozenset(),0,0,None) for k in p.look),('idle',0,None),0,0)
    seen={init:None}; q=deque([init]); n=0
    def trace(s,msg):
        out=[msg]
        while s is not None:
            pr=seen[s]
            if pr is None: break
            s,lab=pr; out.append(lab)
        return out[::-1]
    while q:
        s=q.popleft(); n+=1
        if n>limit: return ('LIMIT',n,None)
        wal,vis,acked,pcw,dl,pend,ent,clk,rds,prb,fence,tomb=s
        deliv=frozenset(wal[:dl])
        if 'FRESH' in p.check and ent is not None and not deliv<=frozenset(ent[0]):
            return ('VIOLATION FRESH',n,trace(s,f'!! entry={set(ent[0])} but stream already delivered {set(deliv)}'))
        if 'ONCE' in p.check and ent is not None and len(set(ent[0]))!=len(ent[0]):
            return ('VIOLATION ONCE',n,trace(s,f'!! entry={ent[0]}: a delta was applied twice'))
        succ=[]
        def add(lab,**k):
            d=dict(wal=wal,vis=vis,acked=acked,pcw=pcw,dl=dl,pend=pend,ent=ent,clk=clk,rds=rds,prb=prb,fence=fence,tomb=tomb); d.update(k)
            succ.append((lab,tuple(d[x] for x in('wal','vis','acked','pcw','dl','pend','ent','clk','rds','prb','fence','tomb'))))
        # writers
        for w in range(NW):
            st=pcw[w]; nx=pcw[:w]+(st+1,)+pcw[w+1:]
            if st==0: add(f'W{w}: commit record in WAL (lsn {len(wal)+1})',wal=wal+(w,),pcw=nx)
            elif st==1: add(f'W{w}: visible (ProcArrayEnd)',vis=vis|{w},pcw=nx)
            elif st==2:
                if p.ryw=='wait' and w not in deliv: continue
                f=max(fence,wal.index(w)+1) if p.ryw=='fence' else fence
                add(f'W{w}: client gets the ack',acked=acked|{w},pcw=nx,fence=f)
        # stream
        if dl<len(wal):
            x=wal[dl]; e2=ent
            if ent is not None:
                if p.inplace:
                    e2=ent if x in ent[2] else (tuple(sorted(ent[0]+(x,))),*ent[1:])
                else: e2=None
            r2=[]
            for r in rds:
                if r[5] is not None and p.taint and r[1]!='idle':
                    f=r[5]; r=r[:5]+((f[0],f[1],f[2],f[3]|{x},*f[4:]),)
                r2.append(r)
            add(f'stream delivers commit of W{x}',dl=dl+1,ent=e2,rds=tuple(r2),pend=(pend|{x}) if p.pending else pend)
        # prober
        if p.prober:
            if prb[0]=='idle' and prb[1]<p.rounds: add(f'prober takes snapshot {set(vis)}',prb=('out',prb[1]+1,vis))
            elif prb[0]=='out': add(f'prober answer {set(prb[2])}: drop from PENDING',prb=('idle',prb[1],None),pend=pend-prb[2])
        if p.expire:
            for x in pend: add(f'timer: W{x} leaves the ring',pend=pend-{x})
        # readers
        for i,r in enumerate(rds):
            left,ph,sn,watermark,last,f=r
            def setr(nr): return rds[:i]+(nr,)+rds[i+1:]
            if ph=='idle' and left>0:
                usable = ent is not None
                if usable and p.ryw=='fence' and dl<fence: usable=False
                if usable and p.watermark and not (dl>=watermark or ent[3]>last): usable=False
                if usable:
                    v=frozenset(ent[0])
                    if 'RYW' in p.check and not acked<=v: return ('VIOLATION RYW',n,trace(s,f'!! R{i} hit {set(v)} but acknowledged {set(acked)}'))
                    if 'MONO' in p.check and not sn<=v: return ('VIOLATION MONO',n,trace(s,f'!! R{i} saw {set(sn)} earlier, now hit {set(v)}'))
                    add(f'R{i}: HIT {set(v)}',rds=setr((left-1,'idle',sn|v,max(watermark,ent[4]) if p.watermark else watermark,max(last,ent[1]) if p.watermark else last,None)))
                else:
                    busy=p.single and any(o[5] is not None and o[5][6]!='nofill' for o in rds)
                    if not busy:
                        carry=pend if p.keep else frozenset()
                        add(f'R{i}: MISS, fill registered (delivered={dl}, pending={set(pend)})',clk=clk+1,
                            rds=setr((left,'reg',sn,watermark,last,(clk+1,dl,carry,frozenset(),None,0,None))))
            elif ph=='reg':
                if p.rr: add(f'R{i}: BEGIN RR; snapshot+query in one: result={set(vis)}',rds=setr((left,'done',sn,watermark,last,(*f[:4],vis,0,vis))))
                else:
                    nf=(*f[:4],vis if p.probe else None,len(wal) if p.lsn else 0,None)
                    add(f'R{i}: probe S0={set(vis)} lsn={len(wal)}' if (p.probe or p.lsn) else f'R{i}: sent',rds=setr((left,'exec',sn,watermark,last,nf)))
            elif ph=='exec': add(f'R{i}: query executes, result={set(vis)}',rds=setr((left,'done',sn,watermark,last,(*f[:6],vis))))
            elif ph=='done':
                res=f[6]; S0=f[4]
                cand=frozenset()
                if p.taint: cand|=f[3]
                if p.late: cand|=frozenset(wal[f[1]:dl])
                if p.pending: cand|=f[2]|pend
                if p.lsn: cand=frozenset(x for x in cand|frozenset(wal[:dl]) if wal.index(x)+1>f[5])
                if S0 is not None: cand=cand-S0
                ok=not cand
                if ok and p.order and ent is not None and f[0]<=ent[1]: ok=False
                if ok and p.tomb and f[0]<=tomb: ok=False
                if 'MONO' in p.check and not sn<=res: return ('VIOLATION MONO',n,trace(s,f'!! R{i} saw {set(sn)}, upstream result {set(res)}'))
                e2=ent
                if ok: e2=(tuple(sorted(res)),clk+1,(S0 or frozenset()) if p.inplace else None,f[0],len(wal))
                add(f'R{i}: result {set(res)} arrives; '+('INSTALL' if ok else f'not cached (unproven {set(cand)})'),ent=e2,clk=clk+1,tomb=clk+1 if ok and p.tomb else tomb,
                    rds=setr((left-1,'idle',sn|res,max(watermark,len(wal)) if p.watermark else watermark,clk+1,None)))
        for lab,t in succ:
            if t not in seen: seen[t]=(s,lab); q.append(t)
    return ('HOLDS',n,None)

ALL=('FRESH','RYW','MONO')
V=[
 P('A0 naive: install whatever comes back, invalidate on stream','VIOLATION'),
 P('A1 register-before-execute + lease (stream taints fills in flight)','VIOLATION',taint=True),
 P('A2 A1 + LSN read before the query (commits<=LSN assumed included)','VIOLATION',taint=True,lsn=True),
 P('A3 A1 + recent changes re-checked on arrival, kept for a fixed time only','VIOLATION',taint=True,pending=True,expire=True,keep=False),
 P('B1 lease + PENDING set without prober (conservative, never proves)','HOLDS',taint=True,pending=True),
 P('B2 lease + PENDING + S0 probe pipelined before the query','HOLDS',taint=True,pending=True,probe=True),
 P('B3 B2 with the exact snapshot (REPEATABLE READ)','HOLDS',taint=True,pending=True,rr=True),
 P('B4 lease + PENDING + background prober, commits pending at start stay with the fill','HOLDS',taint=True,pending=True,prober=True,fast=dict(look=(2,1),rounds=1)),
 P('B5 B4 but PENDING is garbage-collected under a fill in flight','VIOLATION',taint=True,pending=True,prober=True,keep=False),
 P('B6 deferred tags: no early registration, ring since start + PENDING at start + S0','HOLDS',late=True,pending=True,probe=True,prober=True,fast=dict(look=(2,1),rounds=1)),
 P('B7 deferred tags without PENDING (ring since start only)','VIOLATION',late=True),
 P('C1 B2, RYW without fence','VIOLATION',taint=True,pending=True,probe=True,check=('FRESH','RYW')),
 P('C2 B2, RYW: ack waits until the commit was delivered','HOLDS',taint=True,pending=True,probe=True,ryw='wait',check=('FRESH','RYW')),
 P('C3 B2, RYW: fence, hits need delivered>=acked LSN','HOLDS',taint=True,pending=True,probe=True,ryw='fence',check=('FRESH','RYW')),
 P('D1 B2 single flight, session monotonic?','HOLDS',taint=True,pending=True,probe=True,check=('FRESH','MONO')),
 P('D2 B2 with concurrent fills of one key, last arrival wins','VIOLATION',taint=True,pending=True,probe=True,single=False,check=('FRESH','MONO')),
 P('D3 D2 + install only if started after the installed entry arrived','VIOLATION',taint=True,pending=True,probe=True,single=False,order=True,check=('FRESH','MONO')),
 P('D4 D3 + the same order kept against invalidated entries (tombstone clock), no session watermark','VIOLATION',taint=True,pending=True,probe=True,single=False,order=True,tomb=True,check=('FRESH','MONO')),
 P('D5 D4 + session watermark: hit needs delivered>=watermark, or an entry whose fill STARTED after my last read','HOLDS',taint=True,pending=True,probe=True,single=False,order=True,tomb=True,watermark=True,fast=dict(look=(2,1)),check=('FRESH','MONO')),
 P('D6 session watermark alone (concurrent fills, last arrival wins)','HOLDS',taint=True,pending=True,probe=True,single=False,watermark=True,look=(2,1),fast=dict(look=(1,1)),check=('FRESH','MONO')),
 P('E1 in-place deltas with the conservative S0','VIOLATION',taint=True,pending=True,probe=True,inplace=True,check=('ONCE',)),
 P('E2 in-place deltas with the exact snapshot (RR)','HOLDS',taint=True,pending=True,rr=True,inplace=True,check=('FRESH','ONCE')),
 P('F  full: lease + PENDING + S0 + prober + ack-wait + concurrent fills + session watermark','HOLDS',taint=True,pending=True,probe=True,prober=True,ryw='wait',single=False,watermark=True,look=(2,1),rounds=1,fast=dict(look=(1,1)),check=ALL),
]
if __name__=='__main__':
    import catalogue, coverage, definitions, fences, join_keys, pooling, reconnect, replicas, sessions, transactions, twokeys
    others=(twokeys,join_keys,coverage,sessions,fences,reconnect,transactions,catalogue,definitions,pooling,replicas)
    models=((V,run),*((m.V,m.run) for m in others))
    sys.exit(min(sum(report(v,r,sys.argv[1:]) for v,r in models),100))
